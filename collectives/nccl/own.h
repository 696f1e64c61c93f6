/* What a communicator is, for its own files alone. */
#ifndef TIERD_COLLECTIVES_NCCL_OWN_H
#define TIERD_COLLECTIVES_NCCL_OWN_H

#include "collectives/nccl/communicator.h"
#include "collectives/nccl/communicator_state.h"

/* A step sums a multiple of so many elements, so that what NCCL moves is aligned. */
#define PART_ELEMENTS 64

/* Nothing on the stream is to be waited for. */
#define NO_MARK UINT64_MAX

struct member {
	int gpu;
	unsigned number, rank_count; /* ranks that it has */
	void *stream;
	char *staging;
	struct ncclComm *comm; /* NULL: NCCL has none */
	void *handles[COMMUNICATOR_RANGES];
	unsigned handle_count;
};

enum operation_phase {
	OPERATION_WAITING,  /* for its announcement, for ranks, or for its turn */
	OPERATION_STARTING, /* NCCL puts a step of it on the streams */
	OPERATION_RUNNING,
};

/* An operation and what the ranks of this process want of it. */
struct slot {
	struct communicator_operation operation;
	bool is_announced;
	enum operation_phase phase;
	unsigned step;
	unsigned asked;
	struct communicator_request **requests; /* by rank */
	uint64_t *marks;			/* by local member: behind it */
};

struct communicator {
	enum communicator_state state;
	const struct nccl *nccl; /* NULL: of one member, and nothing is to be moved */
	const struct communicator_gpu_ops *ops;
	void *owner;
	char *job;
	uint64_t epoch;
	struct nccl_id id;

	unsigned rank_count, member_count, local_count, local_ranks;
	unsigned *member_of_rank;
	struct member *members; /* local_count of them */
	size_t staging_bytes;
	unsigned staged_most; /* parts of contributions that one member's staging memory holds at once */

	/* By sequence: what is on the streams is before next, and what is done before oldest. */
	struct slot slots[COMMUNICATOR_QUEUE];
	uint64_t oldest, next;
	struct communicator_request **retiring; /* those of an operation that is done */

	uint64_t began_ns;    /* its creation, or its closing */
	uint64_t progress_ns; /* the oldest operation on the streams has had them to itself since */
	uint64_t creation_timeout_ns, operation_timeout_ns;

	int status; /* with which requests are done once it is given up */
	char problem[768];
};

static inline struct slot *communicator_slot(struct communicator *communicator, uint64_t sequence)
{
	return &communicator->slots[sequence % COMMUNICATOR_QUEUE];
}

/* NULL: the member is of another process. */
static inline struct member *communicator_local(struct communicator *communicator, unsigned member)
{
	unsigned local = member - communicator->members[0].number;

	return local < communicator->local_count ? &communicator->members[local] : NULL;
}

/* ---- problem.c ---- */

/* Say why something is refused, or has failed, of the job or of one operation. They return the status. */
int communicator_refuse(struct communicator *communicator, int status, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
int communicator_refuse_operation(struct communicator *communicator,
				  const struct communicator_operation *operation, int status,
				  const char *format, ...) __attribute__((format(printf, 4, 5)));
/* "GPU 3 (ranks 0, 1)". */
void communicator_write_member(const struct communicator *communicator, const struct member *member,
			       char *text, size_t size);
const char *communicator_kind_name(enum communicator_kind kind);

/* ---- members.c: NCCL's calls. Without NCCL they do nothing, and succeed. ---- */

/* Calls put() for each local member, all in one group of NCCL's. It returns an error of NCCL's, or a negative
 * errno after communicator_refuse(). call: NCCL's name of what it calls. */
int members_group(struct communicator *communicator, const char *call,
		  int (*put)(struct communicator *communicator, struct member *member, void *argument),
		  void *argument);
int members_create(struct communicator *communicator);
/* 1: NCCL has done what it was called for last, and no member has failed; 0: not yet; negative: one failed.
 */
int members_settled(struct communicator *communicator);
int members_register(struct communicator *communicator, struct member *member, void *memory, size_t bytes);
int members_finalize(struct communicator *communicator);
int members_destroy(struct communicator *communicator);
/* Ends kernels that wait for others. */
void members_abort(struct communicator *communicator);

/* ---- steps.c: what an operation puts on the streams, in steps of one group each. ---- */

bool steps_are_sums(const struct communicator_operation *operation);
unsigned steps_count(const struct communicator *communicator, const struct communicator_operation *operation);
/* Puts the group of a step there; when members_settled(), steps_finish() puts there what follows it. */
int steps_put(struct communicator *communicator, struct slot *slot);
int steps_finish(struct communicator *communicator, struct slot *slot);

/* ---- order.c ---- */

bool operations_are_under_way(const struct communicator *communicator); /* on the streams */
bool operations_are_wanted(const struct communicator *communicator);	/* announced, or asked for */

/* ---- operations.c ---- */

/* Puts on the streams what can be, calls what is done, and looks at the clock. */
int operations_poll(struct communicator *communicator, uint64_t now_ns);
/* After members_abort(): nothing more comes to the streams. */
void operations_give_up(struct communicator *communicator);
/* False: a GPU is not past what was put there. Else all is done, with the communicator's status. */
bool operations_drain(struct communicator *communicator);

#endif
