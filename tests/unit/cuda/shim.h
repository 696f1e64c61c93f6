/* CUDA for a processor: a source of kernels that is included behind this becomes C++, and its kernels
 * functions that shim_run() calls, one warp after the other. */
#ifndef TIERD_TESTS_UNIT_CUDA_SHIM_H
#define TIERD_TESTS_UNIT_CUDA_SHIM_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define __global__
#define __grid_constant__
/* Of the threads that run kernels, each plays a GPU's block at a time. */
#define __shared__ static thread_local

struct uint2 {
	unsigned x, y;
};

struct uint4 {
	unsigned x, y, z, w;
};

static thread_local struct {
	unsigned x;
} blockIdx, blockDim, threadIdx;

/* A GPU takes no other access. */
template <typename type> static inline void shim_require_aligned(const type *address)
{
	if ((uintptr_t)address % sizeof(type) == 0)
		return;
	fprintf(stderr, "a kernel accesses %zu bytes at once that are not aligned\n", sizeof(type));
	abort();
}

template <typename type> static inline type __ldcs(const type *from)
{
	type value;

	shim_require_aligned(from);
	memcpy(&value, from, sizeof(value));
	return value;
}

template <typename type> static inline void __stcs(type *to, type value)
{
	shim_require_aligned(to);
	memcpy(to, &value, sizeof(value));
}

static inline void __syncwarp()
{
}

template <typename type>
static void shim_run(void (*kernel)(type), const void *arguments, uint32_t blocks, uint32_t threads)
{
	blockDim.x = threads;
	for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++)
		for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x += 32)
			kernel(*(const type *)arguments);
}

#endif
