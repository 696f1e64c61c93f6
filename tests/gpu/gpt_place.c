#include "examples/gpt/cuda/arguments.h"
#include "examples/gpt/cuda/calls.h"
#include "tests/gpu/hardware.h"
#include "tests/unit/gpt_kernels.h"

const char *gpt_place_find(void)
{
	static struct dynamic_library library;
	const char *why = hardware_find();
	struct blas_calls calls;

	if (why)
		return why;
	if (!gpt_kernels_image())
		return "no kernels: they were built without nvcc";
	return blas_calls_open(&calls, &library)
		       ? NULL
		       : "no cuBLAS: libcublas.so is in no folder that the loader looks in";
}
