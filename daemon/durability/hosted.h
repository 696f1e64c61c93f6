/* Hosted: what of a pack is in host memory, and where that lies on NVMe. One that backs it up writes it
 * there, one that brings it back reads it. */
#ifndef TIERD_DAEMON_HOSTED_H
#define TIERD_DAEMON_HOSTED_H

#include "daemon/model/model.h"
#include "daemon/residency/residency.h"

/* Parts of a pack: of each section the parameters and the states. */
#define HOSTED_PARTS (UNIT_SECTIONS * (1 + STATES_MAXIMUM))

struct hosted_part {
	enum unit_section section;
	int state; /* STATE_PARAMETER, or a state's number */
};

struct hosted_part hosted_part(unsigned index);

/* Fills in what is to be moved: stream, offset, length and buffer. False: the pack has no such part, or not
 * in host memory. */
bool hosted_find(const struct job *job, uint32_t pack, struct hosted_part part,
		 struct store_transfer *transfer);

#endif
