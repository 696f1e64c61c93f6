/* Host part: what of a pack is in host memory, and where that lies on NVMe. One that backs it up writes it
 * there, one that brings it back reads it. */
#ifndef TIERD_DAEMON_HOST_PART_H
#define TIERD_DAEMON_HOST_PART_H

#include "daemon/model/model.h"
#include "daemon/residency/residency.h"

/* Parts of a pack: of each section the parameters and the states. */
#define HOST_PARTS (UNIT_SECTIONS * (1 + STATES_MAXIMUM))

struct host_part {
	enum unit_section section;
	int state; /* STATE_PARAMETER, or a state's number */
};

struct host_part host_part_at(unsigned index);

/* Fills in what is to be moved: stream, offset, length and buffer. False: the pack has no such part, or not
 * in host memory. */
bool host_part_find(const struct job *job, uint32_t pack, struct host_part part,
		    struct store_transfer *transfer);

#endif
