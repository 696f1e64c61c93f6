/* The kernels of updates and norms, and those of sums (shim.h), as what the stand-in for the GPU driver
 * loads. */
#ifndef TIERD_TESTS_UNIT_CUDA_SHIM_IMAGE_H
#define TIERD_TESTS_UNIT_CUDA_SHIM_IMAGE_H

#include "tests/lib/gpu/image.h"

extern const struct standin_image shim_image, shim_sum_image;

#endif
