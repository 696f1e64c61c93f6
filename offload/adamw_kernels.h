/* The AdamW kernels of each instruction set; adamw_kernels() chooses. */
#ifndef TIERD_OFFLOAD_ADAMW_KERNELS_H
#define TIERD_OFFLOAD_ADAMW_KERNELS_H

#include "offload/adamw.h"

/* How far ahead, in bytes, a vector kernel asks for each of its arrays: the processor's own prefetchers stop
 * at the end of a page. Measured: up to a fifth faster, and within the noise where memory is saturated. */
#define ADAMW_AHEAD 4096

extern const struct adamw_kernels adamw_scalar, adamw_avx2, adamw_avx512;

#endif
