/* The norm kernels of each instruction set, and what they share. */
#ifndef TIERD_OFFLOAD_NORM_KERNELS_H
#define TIERD_OFFLOAD_NORM_KERNELS_H

#include "offload/optimizer/norm.h"

norm_kernel norm_scalar, norm_avx2, norm_avx512;

/* Adds the squares of a row of lanes, or of a part of one. */
static inline void norm_add_row(double *lanes, const float *values, size_t count)
{
	for (size_t j = 0; j < count; j++)
		lanes[j] += (double)values[j] * (double)values[j];
}

/* The sum of a block's lanes. */
static inline double norm_add_lanes(double lanes[NORM_LANES])
{
	for (size_t half = NORM_LANES / 2; half > 0; half /= 2)
		for (size_t j = 0; j < half; j++)
			lanes[j] += lanes[j + half];
	return lanes[0];
}

#endif
