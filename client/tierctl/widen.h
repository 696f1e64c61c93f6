/* Numbers of 16 bits as fp32, which is exact. */
#ifndef TIERD_CLIENT_TIERCTL_WIDEN_H
#define TIERD_CLIENT_TIERCTL_WIDEN_H

#include <stdint.h>

/* format: TIERD_BF16 or TIERD_FP16; narrow need not be aligned. */
void widen(uint32_t format, const void *narrow, uint64_t count, float *ret_wide);

#endif
