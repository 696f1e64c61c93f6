/* Host stream: one kind of state of a pack that is in host memory, and its place on NVMe. A backup writes it
 * there, a host load reads it back. */
#ifndef TIERD_DAEMON_HOST_STREAM_H
#define TIERD_DAEMON_HOST_STREAM_H

#include "daemon/model/model.h"

/* Of a pack: the parameters and the states of each section. */
#define HOST_STREAMS (UNIT_SECTIONS * (1 + STATES_MAXIMUM))

struct host_stream {
	enum unit_section section;
	int state; /* STATE_PARAMETER, or a state's number */
};

struct host_stream host_stream_at(unsigned index);

/* Fills in what is to be moved: stream, offset, length and buffer. False: the pack has no such stream, or not
 * in host memory. */
bool host_stream_find(const struct job *job, uint32_t pack, struct host_stream stream,
		      struct store_transfer *transfer);

#endif
