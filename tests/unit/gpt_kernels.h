/* The kernels of examples/gpt as functions of the processor: false: there is none of that name. */
#ifndef TIERD_TESTS_UNIT_GPT_KERNELS_H
#define TIERD_TESTS_UNIT_GPT_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
bool shim_run_gpt(const char *kernel, const void *arguments, uint32_t blocks, uint32_t threads);
#ifdef __cplusplus
}
#endif

#endif
