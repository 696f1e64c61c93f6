/* What the kernel that sums contributions on a GPU is told: the same bytes on both sides. */
#ifndef TIERD_COLLECTIVES_CUDA_ARGUMENTS_H
#define TIERD_COLLECTIVES_CUDA_ARGUMENTS_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "collectives/reduce.h"

/* As many ranks as have memory on one GPU. */
#define SUM_MAX_RANKS 64

/* As a reduce_kernel is, over arrays in the GPU's memory; those that begin at multiples of 16 bytes take
 * least time. */
struct sum_arguments {
	const void *contributions[SUM_MAX_RANKS];
	float *sum;
	uint64_t count; /* elements */
	uint32_t rank_count;
	uint32_t is_added;
};

static_assert(offsetof(struct sum_arguments, sum) == 8 * SUM_MAX_RANKS &&
		      sizeof(struct sum_arguments) == 8 * SUM_MAX_RANKS + 24,
	      "as on the GPU");

/* Threads of a block of the grid. */
#define SUM_THREADS 256
#define SUM_GROUP 4 /* elements of each */

#endif
