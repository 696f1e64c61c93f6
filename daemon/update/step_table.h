/* What happens to a step, and what it becomes then. */
#ifndef TIERD_DAEMON_STEP_TABLE_H
#define TIERD_DAEMON_STEP_TABLE_H

#include "common/transition.h"
#include "daemon/model/model.h"

enum step_event {
	STEP_EVENT_CLOSED,     /* a rank closes its part */
	STEP_EVENT_ENTERED,    /* a rank comes to write values */
	STEP_EVENT_COMPLETE,   /* all have closed, and all gradients are summed */
	STEP_EVENT_HANDED_OUT, /* ranks may write what is theirs */
	STEP_EVENT_DECIDED,
	STEP_EVENT_FLUSH,     /* the store lacks values that are in host memory */
	STEP_EVENT_PLACE,     /* the store has them, and nobody reads what they were before the writing */
	STEP_EVENT_APPLY,     /* all values are in their places */
	STEP_EVENT_APPLIED,   /* the sweep has ended, or there is none */
	STEP_EVENT_FAILED,    /* it cannot be taken */
	STEP_EVENT_ABORTED,   /* the epoch has ended */
	STEP_EVENT_CANCELLED, /* the job breaks or is dropped, and with it a writing */
};
#define STEP_EVENTS (STEP_EVENT_CANCELLED + 1)

/* The event is possible in the state of the job's step, which changes. */
void step_happens(struct job *job, enum step_event event);

extern const struct transition_table step_table;

#endif
