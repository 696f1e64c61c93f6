/* The kernels of the update on a GPU: how the driver finds them, and how many threads run them. Each takes
 * its struct of arguments as its one parameter. */
#ifndef TIERD_OFFLOAD_CUDA_KERNELS_KERNELS_H
#define TIERD_OFFLOAD_CUDA_KERNELS_KERNELS_H

#include "offload/cuda/kernels/arguments.h"
#include "offload/optimizer/optimizer.h"

/* What cuModuleLoadData() takes. NULL: tierd was built without nvcc. */
const void *kernels_image(void);

/* What cuModuleGetFunction() takes. */
#define KERNELS_COUNT 16
extern const char *const kernels_names[KERNELS_COUNT];

/* The name of one; of UPDATE_THREADS. */
const char *kernels_update(const struct optimizer *optimizer, enum moment_format format);
uint32_t kernels_update_blocks(enum moment_format format, uint64_t count);

/* Of NORM_THREADS. */
#define KERNELS_NORM "norm_blocks"
uint32_t kernels_norm_blocks(uint64_t count);

#endif
