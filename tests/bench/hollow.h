/* A device that drops what is written from one buffer, and reports it as written. All other transfers go to
 * the device below it. */
#ifndef TIERD_TESTS_BENCH_HOLLOW_H
#define TIERD_TESTS_BENCH_HOLLOW_H

#include "offload/device/tier.h"

struct hollow_tier {
	struct tier tier;
	struct tier_ops ops;
	struct tier *next;
	const char *nothing; /* that buffer; borrowed */
	size_t nothing_bytes;
	uint64_t dropped;
	struct queue ended;
};

/* Takes over next, until tier_free(). */
void hollow_init(struct hollow_tier *hollow, struct tier *next, const void *nothing, size_t bytes);
/* Ends the writes that have gone nowhere. Whether others have come meanwhile. */
bool hollow_tell(struct hollow_tier *hollow);

#endif
