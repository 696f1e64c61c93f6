/* The driver's calls that tests and benchmarks of kernels use, as its reference has them, beside those of
 * offload/cuda/driver.h. */
#ifndef TIERD_TESTS_GPU_CALLS_H
#define TIERD_TESTS_GPU_CALLS_H

#include <stddef.h>
#include <stdint.h>

/* All return an error of the driver's. */
struct gpu_calls {
	int (*retain_context)(void **ret_context, int device);
	int (*set_context)(void *context);
	int (*load)(void **ret_module, const void *image);
	int (*find)(void **ret_function, void *module, const char *name);
	int (*allocate)(unsigned long long *ret_memory, size_t bytes);
	int (*free)(unsigned long long memory);
	int (*write)(unsigned long long to, const void *from, size_t bytes);
	int (*read)(void *to, unsigned long long from, size_t bytes);
	int (*copy)(unsigned long long to, unsigned long long from, size_t bytes);
	int (*launch)(void *function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
		      unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
		      void *stream, void **parameters, void **extra);
	int (*wait)(void);
};

#endif
