/* What runs the kernels of examples/gpt. */
#ifndef TIERD_TESTS_UNIT_GPT_KERNELS_H
#define TIERD_TESTS_UNIT_GPT_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
/* As functions of the processor; false: there is none of that name. */
bool shim_run_gpt(const char *kernel, const void *arguments, uint32_t blocks, uint32_t threads);
/* NULL; or, where a GPU is to run them, why it cannot. */
const char *gpt_place_find(void);
#ifdef __cplusplus
}
#endif

#endif
