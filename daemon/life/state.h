/* The life of a job, and its epochs, as tables: what may happen in each state, and what follows it. Nothing
 * else changes job->state and job->epoch.state. docs/architecture.md has both tables. */
#ifndef TIERD_DAEMON_LIFE_STATE_H
#define TIERD_DAEMON_LIFE_STATE_H

#include "common/transition.h"
#include "daemon/model/model.h"

enum life_event {
	LIFE_PLAN,	  /* its memory and disk are to be reserved */
	LIFE_PLANNED,	  /* they are */
	LIFE_UNPLANNED,	  /* they cannot be, or not yet */
	LIFE_INITIALIZE,  /* all its values are there, and are to be stored */
	LIFE_INITIALIZED, /* they are */
	LIFE_RESTORE,	  /* it was read from its store */
	LIFE_LOSE,	  /* its store is there, and cannot be read */
	LIFE_RELEASE,	  /* its host memory is given back */
	LIFE_BREAK,	  /* its state in memory is not one of a step any more */
	LIFE_DROP,	  /* somebody drops it, or it ends before it had a state */
	LIFE_CLOSE,	  /* the daemon ends */
	LIFE_REPLACE,	  /* another job is made in its place */
	LIFE_SUPERSEDE,	  /* that one has a state */
	LIFE_REOPEN,	  /* it is to be read from its store again */
	LIFE_EVENTS,
};

enum epoch_event {
	EPOCH_BEGIN,  /* all ranks are ready */
	EPOCH_END,    /* one of them is lost, has left, or joins again; or the job breaks */
	EPOCH_RESUME, /* the job was read from its store */
	EPOCH_EVENTS,
};

/* Changes the job's state. An event that its state does not have changes nothing and is a mistake of tierd:
 * it is logged, and counted in the node. The first of LIFE_DROP, LIFE_CLOSE, LIFE_REPLACE and LIFE_REOPEN
 * ends the job: it is found no more, and is freed once nothing of it is in flight. */
void life_step(struct job *job, enum life_event event);
/* LIFE_DROP. */
void job_drop(struct job *job);
void epoch_step(struct job *job, enum epoch_event event);

extern const struct transition_table life_table, epoch_table;

#endif
