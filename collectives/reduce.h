/* Sums contributions of ranks in fp32, in the order of docs/numerics.md. */
#ifndef TIERD_COLLECTIVES_REDUCE_H
#define TIERD_COLLECTIVES_REDUCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/simd.h"

#define REDUCE_MAX_RANKS 1024

enum reduce_format { REDUCE_FP32, REDUCE_BF16, REDUCE_FP16, REDUCE_FORMATS };

static inline size_t reduce_element_bytes(enum reduce_format format)
{
	return format == REDUCE_FP32 ? sizeof(float) : sizeof(uint16_t);
}

/* sum = tree(contributions), or sum + tree(contributions) where is_added. contributions[r] is rank r's array,
 * NULL where it is absent; at least one is there. rank_count is at most REDUCE_MAX_RANKS. Contributions may
 * change while they are read (clients can write to them): each element is read once. */
typedef void reduce_kernel(float *sum, bool is_added, const void *const *contributions, unsigned rank_count,
			   size_t count);

/* level is at most simd_level(). */
reduce_kernel *reduce_sum_kernel(enum simd_level level, enum reduce_format format);

#endif
