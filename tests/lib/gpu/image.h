/* What cuModuleLoadData() of the stand-in for the GPU driver takes: kernels that are functions of the test's.
 * An image of nvcc's is refused, as a driver refuses one that is newer. */
#ifndef TIERD_TESTS_LIB_GPU_IMAGE_H
#define TIERD_TESTS_LIB_GPU_IMAGE_H

#include <stdint.h>

#include "offload/cuda/driver.h"

#define STANDIN_IMAGE UINT64_C(0x65676d6920646e74)
#define STANDIN_RANGES 17

/* What a kernel reads or writes. */
struct standin_range {
	driver_address address;
	size_t bytes;
	bool is_read, is_written;
};

struct standin_kernel {
	const char *name;
	size_t argument_bytes; /* of its one parameter */
	unsigned threads;      /* of a block */
	/* How many ranges, of at most STANDIN_RANGES: for the detector of races. */
	unsigned (*find_ranges)(const struct standin_kernel *kernel, const void *arguments,
				struct standin_range *ret_ranges);
	/* On the stream's thread. Kernels of several streams run at once. */
	void (*run)(const struct standin_kernel *kernel, const void *arguments, unsigned blocks,
		    unsigned threads);
};

struct standin_image {
	uint64_t magic;
	unsigned count;
	const struct standin_kernel *kernels;
};

#endif
