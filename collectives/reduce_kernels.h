/* The summing kernels of each instruction set, for few ranks and short rows; reduce.c builds the rest on
 * them. */
#ifndef TIERD_COLLECTIVES_REDUCE_KERNELS_H
#define TIERD_COLLECTIVES_REDUCE_KERNELS_H

#include "collectives/reduce.h"
#include "common/simd.h"

#define REDUCE_ROW_RANKS 8

/* Of the elements first … end - 1: sum = tree, or sum + tree, of 1 … REDUCE_ROW_RANKS contributions, none of
 * them absent. */
typedef void reduce_row(float *sum, bool is_added, const void *const *contributions, unsigned rank_count,
			size_t first, size_t end);

struct reduce_rows {
	reduce_row *of[REDUCE_FORMATS];
};

extern const struct reduce_rows reduce_scalar, reduce_avx2, reduce_avx512;

#endif
