/* The GPU that tests and benchmarks of kernels run on: the first one that the driver shows. */
#ifndef TIERD_TESTS_GPU_PLACE_H
#define TIERD_TESTS_GPU_PLACE_H

#include "tests/unit/cuda/kernel_place.h"

/* Beside what tests use of it, for benchmarks: they begin to work, and return. */
void gpu_begin(const char *kernel, const void *arguments, uint32_t blocks, uint32_t threads);
void gpu_begin_copy(void *to, const void *from, size_t bytes);
/* Between GPU and pinned host memory, each way in a stream of its own. */
void gpu_begin_both_ways(void *to_gpu, const void *from_host, size_t in_bytes, void *to_host,
			 const void *from_gpu, size_t back_bytes);
/* Until all of it is done. */
void gpu_wait(void);
const char *gpu_name(void);

#endif
