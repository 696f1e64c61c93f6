/* The pace of a scrub: how many extents of a job are due, so that all have been read once within a period.
 * Data only, no clock. */
#ifndef TIERD_DAEMON_SCRUB_PACE_H
#define TIERD_DAEMON_SCRUB_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct scrub_pace {
	uint64_t began_ns; /* of the pass; 0: there has been none */
	uint64_t done;	   /* extents of it */
	bool is_hurried;   /* all that is left is due */
};

/* period_ns 0: nothing is due but what is hurried. */
uint64_t scrub_pace_due(const struct scrub_pace *pace, uint64_t extents, uint64_t period_ns, uint64_t now_ns);
/* When the next one is; UINT64_MAX: never. */
uint64_t scrub_pace_next_ns(const struct scrub_pace *pace, uint64_t extents, uint64_t period_ns,
			    uint64_t now_ns);
/* So many have been read; true: the pass is over, and the next one begins. */
bool scrub_pace_advance(struct scrub_pace *pace, uint64_t count, uint64_t extents, uint64_t now_ns);

#endif
