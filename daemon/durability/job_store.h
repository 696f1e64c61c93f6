/* The states of a job's store: whether the job has one, and what is durable there.
 * daemon/durability/job_store.c has them as a table, which docs/architecture.md shows. */
#ifndef TIERD_DAEMON_JOB_STORE_H
#define TIERD_DAEMON_JOB_STORE_H

#include "common/transition.h"

struct job;

enum job_store_state {
	JOB_STORE_NONE,	     /* nothing outlives the daemon, or the store is still being made or opened */
	JOB_STORE_NEW,	     /* it is there, and has no commit yet */
	JOB_STORE_COMMITTED, /* a step of the job is durable */
	JOB_STORE_LEAVING,   /* other jobs are in it; this one, which ends, is being removed from it */
	JOB_STORE_LEFT,	     /* the job is not in it any more */
	JOB_STORE_ABANDONED, /* the job could not be removed: that is to be done when it has ended */
};
#define JOB_STORE_STATES 6

enum job_store_event {
	JOB_STORE_MADE,
	JOB_STORE_FOUND,
	JOB_STORE_COMMIT,
	JOB_STORE_LEAVE,
	JOB_STORE_REMOVED,
	JOB_STORE_KEPT,
	JOB_STORE_CLOSE,
};
#define JOB_STORE_EVENTS 7

extern const struct transition_table job_store_table;

/* Something happens to the job's store, which has that event in its state. */
void job_store_step(struct job *job, enum job_store_event event);

#endif
