/* A collective adds what the ranks of a node contribute to a sum, on workers. */
#ifndef TIERD_COLLECTIVES_COLLECTIVE_H
#define TIERD_COLLECTIVES_COLLECTIVE_H

#include "collectives/reduce.h"
#include "common/workers.h"

struct collective;

/* Elements of a contribution in one format; segments follow each other in the sum. */
struct collective_segment {
	enum reduce_format format;
	uint64_t offset; /* bytes, in a contribution */
	uint64_t count;	 /* elements */
};

#define COLLECTIVE_TASKS 16

/* Adds the ranks' contributions to a sum. The caller owns it, and leaves it and what it points to alone until
 * done() runs, once, on the loop thread. Contributions may change while they are read. */
struct collective_push {
	void (*done)(struct collective_push *push);
	/* NULL, or called for each piece that has been added, with its work, which is timed then. */
	void (*worked)(const struct collective_push *push, const struct work *work, uint64_t elements);
	const void *const *contributions; /* by rank; NULL: absent; at least one is there */
	unsigned rank_count;		  /* at most REDUCE_MAX_RANKS */
	const struct collective_segment *segments;
	unsigned segment_count;
	float *sum;
	bool is_added; /* else the sum is overwritten */

	/* Private. */
	struct collective_task { /* some elements, which one worker adds, and then the next ones */
		struct work work;
		struct collective_push *push;
		const struct collective *collective;
		uint64_t first, count;
	} tasks[COLLECTIVE_TASKS];
	unsigned tasks_left;
	uint64_t elements, started, each; /* started: some task has them, or had */
};

/* workers: borrowed; done() runs when they are reaped. -ENOMEM. */
int collective_new(struct workers *workers, struct collective **ret_collective);
/* All pushes must be done. */
struct collective *collective_free(struct collective *collective);
DEFINE_FREEP(struct collective *, collective_free)

/* done() never runs inside this call; it runs for a push of no elements, too. */
void collective_push(struct collective *collective, struct collective_push *push);

#endif
