/* The inside of gradients: contributions, the sums they go to, and what moves them; for gradient.c,
 * reduction.c and held.c. */
#ifndef TIERD_DAEMON_GRADIENT_H
#define TIERD_DAEMON_GRADIENT_H

#include "daemon/gradients/gradients.h"
#include "daemon/gradients/spill.h"
#include "daemon/model/model.h"

#define REDUCTIONS 16

/* One sum being added to, on the workers. */
struct reduction {
	struct collective_push push;
	struct queue link;
	struct job *job;
	struct sum *sum; /* NULL: folds the ranks' sums of a unit */
	struct collective_segment segments[UNIT_TRAINABLE_SECTIONS];
	const void **pointers;		     /* by rank */
	struct contribution **contributions; /* by rank */
};

/* Room for one contribution beside the ranks' buffers. */
struct held_buffer {
	struct queue link;     /* of the free ones */
	struct queue all_link; /* of all */
	struct memory memory;
	struct contribution contribution;
	struct work work;	     /* copies it here */
	struct contribution *source; /* while it is copied: it waits for no sum then */
	uint64_t source_bytes;
	uint8_t absent[]; /* of the contribution */
};

bool gradient_is_of_ranks(const struct job *job); /* stages 0 and 1: a sum for each rank */
struct sum *gradient_sum_of(const struct job *job, uint32_t unit, uint32_t rank);
char *gradient_sum_address(const struct job *job, const struct sum *sum);
bool gradient_is_in_use(const struct job *job, uint32_t unit);

/* Starts adding to the sum what waits for it, if all of its next micro-batch is there. */
void sum_try(struct job *job, struct sum *sum);

/* The contribution has no gradient of this one of its unit's tensors. */
static inline bool contribution_lacks(const struct contribution *contribution, uint32_t tensor)
{
	return contribution->absent && contribution->absent[tensor / 8] >> tensor % 8 & 1;
}

/* Waits in its sum's queue from now on; not any more. */
void contribution_wait(struct contribution *contribution);
void contribution_take(struct contribution *contribution);
/* Read to its end: the rank has its buffer back, and hears of it. */
void contribution_finish(struct contribution *contribution, int status);

int reduction_init(struct job *job);
void reduction_clear(struct job *job);
int held_init(struct job *job);
void held_clear(struct job *job);

#endif
