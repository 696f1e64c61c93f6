/* The GPU that tests and benchmarks of kernels run on: the first one that the driver shows. */
#ifndef TIERD_TESTS_GPU_PLACE_H
#define TIERD_TESTS_GPU_PLACE_H

#include "tests/unit/cuda/kernel_place.h"

/* Beside what tests use of it, for benchmarks: both begin to work, and return. */
void gpu_begin(const char *kernel, const void *arguments, uint32_t blocks, uint32_t threads);
void gpu_begin_copy(void *to, const void *from, size_t bytes);
/* Until all of it is done. */
void gpu_wait(void);
const char *gpu_name(void);

#endif
