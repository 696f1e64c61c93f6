/* A store task: what a job's store is asked for beside its commits. They go one after the other, in the order
 * in which they came, and never while a commit is on its way; a commit that is due waits for those that can
 * go.
 */
#ifndef TIERD_DAEMON_STORE_TASK_H
#define TIERD_DAEMON_STORE_TASK_H

#include "daemon/model/model.h"

struct store_task {
	struct queue link; /* of the job's, until it is done */
	struct job *job;
	uint64_t step;		/* not before this one is durable */
	bool awaits_definition; /* not before another definition of the job is durable */
	bool is_last;		/* not before nothing else of the job is in flight, and it has no ranks */
	/* Asks the store. After a negative errno done() follows as if the store had said it. */
	int (*begin)(struct store_task *task, struct store *store);
	/* Once, on the loop, not inside the call that queues it. -ESHUTDOWN: it did not begin, and will not:
	 * the job has ended, or is broken. */
	void (*done)(struct store_task *task, int status);

	struct store_request request;
	bool is_under_way;
};

/* Of a durable job. The task is lent until done(). */
void store_task_send(struct store_task *task);

/* None is under way. */
bool store_tasks_are_quiet(const struct job *job);
/* None begins any more. */
/* One of them is to be the last: the job is being rolled back, and nobody may join it. */
bool job_is_rolling_back(const struct job *job);
void store_tasks_end(struct job *job);

#endif
