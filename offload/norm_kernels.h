/* The norm kernels of each instruction set, and what they share: 16 lanes and how they are combined. */
#ifndef TIERD_OFFLOAD_NORM_KERNELS_H
#define TIERD_OFFLOAD_NORM_KERNELS_H

#include "offload/norm.h"

#define NORM_LANES 16

norm_kernel norm_scalar, norm_avx2, norm_avx512;

/* Adds the squares of the last, incomplete row of lanes. */
static inline void norm_add_row(double *lanes, const float *values, size_t count)
{
	for (size_t j = 0; j < count; j++)
		lanes[j] += (double)values[j] * (double)values[j];
}

static inline double norm_combine(double *lanes)
{
	for (size_t half = NORM_LANES / 2; half > 0; half /= 2)
		for (size_t j = 0; j < half; j++)
			lanes[j] += lanes[j + half];
	return lanes[0];
}

#endif
