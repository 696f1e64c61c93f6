/* A device that keeps nothing but its beginning: what is written behind that goes nowhere, and is told to be
 * there. It is stacked on another one. */
#ifndef TIERD_TESTS_BENCH_HOLLOW_H
#define TIERD_TESTS_BENCH_HOLLOW_H

#include "offload/tier.h"

struct hollow_tier {
	struct tier tier;
	struct tier_ops ops;
	struct tier *next;
	uint64_t kept; /* bytes from its beginning on; what is written behind them is not */
	uint64_t dropped;
	struct queue ended;
};

/* Takes over next, until tier_free(). */
void hollow_init(struct hollow_tier *hollow, struct tier *next, uint64_t kept);
/* Ends the writes that have gone nowhere. Whether others have come meanwhile. */
bool hollow_tell(struct hollow_tier *hollow);

#endif
