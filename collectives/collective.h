/* A collective combines what ranks and nodes hold: it pulls shards that this node lacks, and pushes partial
 * sums to their owners. Operations are keyed, not ordered: no two ranks can deadlock. */
#ifndef TIERD_COLLECTIVES_COLLECTIVE_H
#define TIERD_COLLECTIVES_COLLECTIVE_H

#include "collectives/reduce.h"
#include "common/workers.h"

struct collective;

/* Embedded first in every operation. The caller owns it, and leaves it and what it points to alone until
 * done() runs, once, on the loop thread, also after collective_abort(). */
struct collective_op {
	uint64_t job;
	uint32_t epoch;
	uint32_t unit;
	uint64_t version;
	bool is_timed;					    /* its pieces are, as work is */
	void (*done)(struct collective_op *op, int status); /* 0; -ECANCELED after an abort */
};

/* Elements of a contribution in one format; segments follow each other in the sum. */
struct collective_segment {
	enum reduce_format format;
	uint64_t offset; /* bytes, in a contribution */
	uint64_t count;	 /* elements */
};

#define COLLECTIVE_PIECES 16

/* Adds this node's ranks' contributions to the sum at the owner. Contributions may change while they are
 * read. */
struct collective_push {
	struct collective_op op;
	const void *const *contributions; /* by rank; NULL: absent */
	unsigned rank_count;		  /* at most REDUCE_MAX_RANKS */
	const struct collective_segment *segments;
	unsigned segment_count;
	float *sum;    /* the owner's accumulator */
	bool is_added; /* else the sum is overwritten */

	struct collective_piece { /* private: one worker's part */
		struct work work;
		struct collective_push *push;
		const void *backend;
		uint64_t first, count; /* elements */
	} pieces[COLLECTIVE_PIECES];
	unsigned piece_count, pieces_left;
};

/* Brings the shards of a unit that this node lacks into the slot. */
struct collective_pull {
	struct collective_op op;
	void *slot;
	struct work work; /* private */
};

struct collective_ops {
	const char *name;
	int (*pull)(struct collective *collective, struct collective_pull *pull);
	int (*push)(struct collective *collective, struct collective_push *push);
	/* NULL where operations are so short that it always comes too late. */
	void (*abort)(struct collective *collective, uint64_t job, uint32_t epoch);
	void (*free)(struct collective *collective);
};

struct collective {
	const struct collective_ops *ops;
	uint64_t pulls, pushes;
	uint64_t pushed_elements; /* of the sums, whatever the number of contributions */
};

/* After an error done() never runs; it never runs inside these calls either. -EINVAL: nobody contributes, or
 * more ranks than REDUCE_MAX_RANKS. A push of no elements is done like any other. */
int collective_pull(struct collective *collective, struct collective_pull *pull);
int collective_push(struct collective *collective, struct collective_push *push);
uint64_t collective_push_elements(const struct collective_push *push);
/* What workers did of one that is done: its nth piece; NULL: it had fewer. */
const struct work *collective_push_work(const struct collective_push *push, unsigned n);

/* Ends the operations of a job's epoch that are not yet done: their done() gets -ECANCELED, or 0 where it was
 * too late. */
void collective_abort(struct collective *collective, uint64_t job, uint32_t epoch);

/* All operations must be done. */
struct collective *collective_free(struct collective *collective);
DEFINE_FREEP(struct collective *, collective_free)

/* The backend of a node alone: every shard is here; sums are formed on the workers (borrowed). done() runs
 * when they are reaped. An abort lets what was submitted finish, with 0. */
int collective_new_local(struct workers *workers, struct collective **ret_collective);

#endif
