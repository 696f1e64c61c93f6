/* The square sums of a unit's gradients, in the blocks and the order of docs/numerics.md. */
#ifndef TIERD_DAEMON_NORM_H
#define TIERD_DAEMON_NORM_H

#include "daemon/job.h"
#include "offload/norm.h"

/* Of all ranks' shards. */
uint64_t norm_blocks(const struct job *job, uint32_t unit);

/* Of a unit's sum, into as many as norm_blocks() says. May be called by workers. */
void norm_measure(const struct job *job, norm_kernel *kernel, uint32_t index, const char *sum,
		  double *blocks);

#endif
