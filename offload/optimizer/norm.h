/* Sum of squares in the order of docs/numerics.md. */
#ifndef TIERD_OFFLOAD_NORM_H
#define TIERD_OFFLOAD_NORM_H

#include <stddef.h>

#include "common/simd.h"

#define NORM_BLOCK_ELEMENTS 65536

#define NORM_LANES 16

/* Adds the squares of a block's elements to its lanes, which begin as zeros: in pieces of whole rows of
 * lanes, but for the last. */
typedef void norm_kernel(double lanes[NORM_LANES], const float *values, size_t count);
/* level is at most simd_level(). */
norm_kernel *norm_find_kernel(enum simd_level level);
/* The sum of a block of at most NORM_BLOCK_ELEMENTS. Not finite exactly if some element is not. */
double norm_combine(double lanes[NORM_LANES]);

#endif
