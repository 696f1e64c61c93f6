/* What torchrun, or our own launcher, tells a rank in its environment. */
#ifndef GPT_ENVIRONMENT_H
#define GPT_ENVIRONMENT_H

#include <stdbool.h>
#include <stdint.h>

struct environment {
	bool is_rank; /* one of several; else the rest is 0 */
	uint64_t rank, world_size;
	uint64_t restarts; /* how often the ranks have been started again */
};

/* -EINVAL: what it says cannot be; reported, with its remedy. */
int environment_read(struct environment *ret_environment);

/* Of a child that becomes a rank on this machine, like all others. */
void environment_set(const struct environment *environment);

#endif
