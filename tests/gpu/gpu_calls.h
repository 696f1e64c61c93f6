/* The driver's calls that tests and benchmarks of kernels use, as its reference has them, beside those of
 * offload/cuda/driver.h. */
#ifndef TIERD_TESTS_GPU_CALLS_H
#define TIERD_TESTS_GPU_CALLS_H

#include <stddef.h>
#include <stdint.h>

/* All return an error of the driver's. */
struct gpu_calls {
	int (*allocate)(unsigned long long *ret_memory, size_t bytes);
	int (*free)(unsigned long long memory);
	int (*write)(unsigned long long to, const void *from, size_t bytes);
	int (*read)(void *to, unsigned long long from, size_t bytes);
	int (*copy)(unsigned long long to, unsigned long long from, size_t bytes);
	int (*wait)(void);
};

#endif
