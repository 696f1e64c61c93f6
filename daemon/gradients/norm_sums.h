/* Square sums of gradients, of which the norm is made: of each unit, in the blocks and the order of
 * docs/numerics.md. */
#ifndef TIERD_DAEMON_NORM_SUMS_H
#define TIERD_DAEMON_NORM_SUMS_H

#include "daemon/model/model.h"
#include "offload/optimizer/norm.h"

/* The blocks of all units, one unit after the other. */
struct norm_sums {
	norm_kernel *kernel;
	uint64_t *first; /* by unit, and the end */
	double *blocks;
};

/* The memory that they take. */
uint64_t norm_sums_bytes(const struct job *job);
/* Zeros. -ENOMEM. */
int norm_sums_init(const struct job *job, struct norm_sums *ret_sums);
void norm_sums_free(struct norm_sums *sums);

/* Measure the sum of a unit, which lies at sum; the sums of a pack, which are in host memory. On any thread.
 */
void norm_measure(const struct job *job, struct norm_sums *sums, uint32_t unit, const char *sum);
void norm_measure_pack(const struct job *job, struct norm_sums *sums, uint32_t pack);

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
