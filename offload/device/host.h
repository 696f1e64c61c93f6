/* The host tier: bytes in memory of this process. */
#ifndef TIERD_OFFLOAD_HOST_H
#define TIERD_OFFLOAD_HOST_H

#include "offload/device/tier.h"

/* base stays the caller's until tier_free(). Transfers are copies, done when host_tier_reap() runs, in order
 * of submission. */
int host_tier_new(void *base, size_t length, struct tier **ret_tier);
void host_tier_reap(struct tier *tier);

#endif
