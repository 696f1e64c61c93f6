/* A program that has this one has the shim's kernels, instead of those that nvcc makes. */
#include "collectives/cuda/sum.h"
#include "offload/cuda/kernels/kernels.h"
#include "tests/unit/cuda/shim_image.h"

const void *kernels_image(void)
{
	return &shim_image;
}

const void *sum_image(void)
{
	return &shim_sum_image;
}
