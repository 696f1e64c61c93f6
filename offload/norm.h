/* Sum of squares in the order of docs/numerics.md. */
#ifndef TIERD_OFFLOAD_NORM_H
#define TIERD_OFFLOAD_NORM_H

#include <stddef.h>

#include "common/simd.h"

#define NORM_BLOCK_ELEMENTS 65536

/* Of one block: count ≤ NORM_BLOCK_ELEMENTS elements. Not finite exactly if some element is not. */
typedef double norm_kernel(const float *values, size_t count);
/* level is at most simd_level(). */
norm_kernel *norm_block_kernel(enum simd_level level);

#endif
