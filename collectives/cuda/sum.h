/* The kernel that sums contributions on a GPU: how the driver finds it, and how many threads run it. It takes
 * struct sum_arguments as its one parameter. */
#ifndef TIERD_COLLECTIVES_CUDA_SUM_H
#define TIERD_COLLECTIVES_CUDA_SUM_H

#include "collectives/cuda/arguments.h"

/* What cuModuleLoadData() takes. NULL: tierd was built without nvcc. */
const void *sum_image(void);

/* The names that cuModuleGetFunction() takes; of SUM_THREADS. */
extern const char *const sum_names[REDUCE_FORMATS];
const char *sum_kernel(enum reduce_format format);
uint32_t sum_blocks(uint64_t count);

#endif
