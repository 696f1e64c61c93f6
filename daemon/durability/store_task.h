/* A store task: a request to a job's store beside its commits. Tasks run one after the other, in the order in
 * which they came, and never while a commit is on its way. A commit that is due waits for tasks that can run.
 */
#ifndef TIERD_DAEMON_STORE_TASK_H
#define TIERD_DAEMON_STORE_TASK_H

#include "daemon/model/model.h"
#include "daemon/request/request.h"

struct store_task {
	struct queue link; /* of the job's, until it is done */
	struct job *job;
	struct requester requester; /* the client that has asked for it, if any */
	uint64_t step;		    /* not before this one is durable */
	bool awaits_definition;	    /* not before another definition of the job is durable */
	bool is_last;		    /* not before nothing else of the job is in flight, and it has no ranks */
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

/* Whether r, of a check of what a client asks for, is 0. If it is not, the request is answered with it. */
bool store_task_check(struct pending *pending, int r, const char *message);
/* Memory of that size, zeros, which begins with a task that a client asks for. requesters: of the client,
 * until store_task_free(). NULL: there is no memory, and the request is answered. */
void *store_task_new(size_t size, struct pending *pending, struct job *job, struct queue *requesters);
void store_task_free(struct store_task *task);
/* The answer, if the client is still there. The task is freed next. */
void store_task_reply(struct store_task *task, Tierd__Wire__Reply *reply);
void store_task_error(struct store_task *task, int r, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* None is under way. */
bool store_tasks_are_quiet(const struct job *job);
/* One of them is to be the last: the job is being rolled back, and nobody may join it. */
bool job_is_rolling_back(const struct job *job);
/* No further one begins. */
void store_tasks_end(struct job *job);

#endif
