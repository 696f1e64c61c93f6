/* The square sums of a unit's gradients, in the blocks and the order of docs/numerics.md. */
#ifndef TIERD_DAEMON_NORM_H
#define TIERD_DAEMON_NORM_H

#include "daemon/gradients/gradients.h"
#include "daemon/model/model.h"
#include "offload/optimizer/norm.h"

/* Of all ranks' shards. */
uint64_t norm_blocks(const struct job *job, uint32_t unit);

/* Of a unit's sum, into as many as norm_blocks() says. May be called by workers. */
void norm_measure(const struct job *job, norm_kernel *kernel, uint32_t index, const char *sum,
		  double *blocks);

/* Of all units, one after the other. */
struct norm_sums {
	uint64_t *first; /* by unit, and the end */
	double *blocks;
};

/* What they take. */
uint64_t norm_sums_bytes(const struct job *job);
/* Zeros. -ENOMEM. */
int norm_sums_init(const struct job *job, struct norm_sums *ret_sums);
void norm_sums_free(struct norm_sums *sums);

bool norm_sums_are_finite(const struct norm_sums *sums, uint32_t unit);

static inline double *norm_sums_of(const struct norm_sums *sums, uint32_t unit)
{
	return &sums->blocks[sums->first[unit]];
}

static inline uint64_t norm_sums_count(const struct norm_sums *sums, uint32_t unit)
{
	return sums->first[unit + 1] - sums->first[unit];
}

#endif
