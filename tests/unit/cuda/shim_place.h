/* What the sources of kernels become (shim.h): functions that run one of theirs, if the name is its. */
#ifndef TIERD_TESTS_UNIT_CUDA_SHIM_PLACE_H
#define TIERD_TESTS_UNIT_CUDA_SHIM_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
bool shim_run_update(const char *kernel, const void *arguments, uint32_t blocks, uint32_t threads);
bool shim_run_sum(const char *kernel, const void *arguments, uint32_t blocks, uint32_t threads);
#ifdef __cplusplus
}
#endif

#endif
