/* The thread that drives communicators of jobs (collectives/nccl): NCCL may keep whoever calls it for
 * milliseconds, and in an abort until its kernels have ended. One for all jobs of the node, so that what
 * several of them put on the same GPUs is there in one order.
 *
 * The loop gives it groups and operations, and hears of them by exchange_thread_reap(). */
#ifndef TIERD_DAEMON_GPU_EXCHANGE_THREAD_H
#define TIERD_DAEMON_GPU_EXCHANGE_THREAD_H

#include "collectives/nccl/communicator.h"
#include "common/queue.h"
#include "offload/cuda/gpu_engine.h"

struct exchange_thread;
struct gpu_stream;

/* Its signals are blocked. */
int exchange_thread_new(struct exchange_thread **ret_thread);
/* No group is with it. */
struct exchange_thread *exchange_thread_free(struct exchange_thread *thread);

/* Readable (an eventfd) while results wait for exchange_thread_reap(), which runs what is to be told. */
int exchange_thread_fd(const struct exchange_thread *thread);
void exchange_thread_reap(struct exchange_thread *thread);

/* Since when it has not paused; 0: it does. What it calls may never return, and nobody can end that. */
uint64_t exchange_thread_at_work_since(const struct exchange_thread *thread);

/* What one side has for the other. */
struct exchange_message {
	struct queue link;
	void (*run)(struct exchange_message *message);
};

/* A GPU, and the memory there that operations are of. */
struct exchange_member {
	unsigned gpu; /* as the driver counts */
	struct gpu_engine *engine;
	driver_address memory;
	size_t bytes;
	/* For sums: the group's staging_bytes of its memory, and kernels that its engine has loaded, by
	 * format. */
	driver_address staging;
	struct driver_function *const *sums;
};

/* The communicator of a job in an epoch. The caller owns it; it and all that it points to is lent from
 * exchange_begin() until ended(). */
struct exchange_group {
	const char *job; /* for texts */
	uint64_t epoch;
	unsigned rank_count, member_count;
	const unsigned *member_of_rank; /* by rank */
	struct exchange_member members[GPUS_MAX];
	size_t staging_bytes; /* 0: it sums nothing */
	uint64_t timeout_ns;  /* of its creation, and of an operation */
	/* Once, unless it fails before, or is to end. */
	void (*ready)(struct exchange_group *group);
	/* Once, if it fails before it is to end. What it had is done before, and what it gets fails. */
	void (*failed)(struct exchange_group *group, const char *problem);
	void (*ended)(struct exchange_group *group);

	/* Of the thread. */
	struct exchange_thread *thread;
	struct communicator *communicator;
	struct gpu_stream *streams[GPUS_MAX];
	uint64_t operations;
	bool is_ready, is_ending;
	struct exchange_message begin, end; /* to the thread */
	struct exchange_message told_ready, told_failure, told_end;
	struct queue link;
	char problem[768];
};

/* An operation of all ranks. Lent until done(). */
struct exchange_operation {
	struct exchange_group *group;
	struct communicator_operation what;    /* the thread gives it its number */
	struct communicator_request *requests; /* by rank: array, or contribution and sum */
	void (*done)(struct exchange_operation *operation, int status); /* 0 or a negative errno */

	/* Of the thread. */
	unsigned left;
	int status;
	struct exchange_message message;
};

/* More memory of a member, which NCCL gets to know. Lent, as the memory is, until the group has ended. */
struct exchange_range {
	struct exchange_group *group;
	unsigned member;
	driver_address memory;
	size_t bytes;

	/* Of the thread. */
	struct exchange_message message;
};

void exchange_begin(struct exchange_thread *thread, struct exchange_group *group);
/* Aborts it, whatever it is at; all that it has is done before ended(). Once for each group. */
void exchange_end(struct exchange_group *group);
/* When it is ready. All works without it as well. */
void exchange_register(struct exchange_range *range);
/* Also before it is ready. Fewer than COMMUNICATOR_QUEUE at once. */
void exchange_submit(struct exchange_operation *operation);

#endif
