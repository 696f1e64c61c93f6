/* The states of a step as a table. */
#include "daemon/update/step_table.h"

#include "common/log.h"

#define IN(state) (1u << (state))
#define UNDECIDED_STEP (IN(STEP_OPEN) | IN(STEP_CLOSING) | IN(STEP_MEASURING) | IN(STEP_REDUCED))
#define UNDECIDED_WRITING (IN(WRITING_ENTERED) | IN(WRITING_OPEN))
#define DECIDED_WRITING                                                                                      \
	(IN(WRITING_DECIDED) | IN(WRITING_FLUSHING) | IN(WRITING_PLACING) | IN(WRITING_APPLYING))

static const struct transition rows[] = {
	{ IN(STEP_OPEN) | IN(STEP_CLOSING), STEP_EVENT_CLOSED, STEP_CLOSING },
	{ IN(STEP_CLOSING), STEP_EVENT_COMPLETE, STEP_MEASURING },
	{ IN(STEP_MEASURING), STEP_EVENT_HANDED_OUT, STEP_REDUCED },
	/* A closing one: its ranks drop the gradients, and there is nothing to measure. */
	{ IN(STEP_CLOSING) | IN(STEP_MEASURING) | IN(STEP_REDUCED), STEP_EVENT_DECIDED, STEP_APPLYING },
	{ IN(STEP_CLOSING) | IN(STEP_MEASURING), STEP_EVENT_FAILED, STEP_OPEN },

	{ IN(STEP_OPEN) | IN(WRITING_ENTERED), STEP_EVENT_ENTERED, WRITING_ENTERED },
	{ IN(WRITING_ENTERED), STEP_EVENT_HANDED_OUT, WRITING_OPEN },
	{ IN(WRITING_OPEN), STEP_EVENT_DECIDED, WRITING_DECIDED },
	{ IN(WRITING_OPEN), STEP_EVENT_FAILED, STEP_OPEN },
	{ IN(WRITING_DECIDED), STEP_EVENT_FLUSH, WRITING_FLUSHING },
	{ IN(WRITING_DECIDED) | IN(WRITING_FLUSHING), STEP_EVENT_PLACE, WRITING_PLACING },
	{ IN(WRITING_PLACING), STEP_EVENT_APPLY, WRITING_APPLYING },

	{ IN(STEP_APPLYING) | IN(WRITING_APPLYING), STEP_EVENT_APPLIED, STEP_OPEN },
	/* What is decided will be applied. */
	{ UNDECIDED_STEP | UNDECIDED_WRITING, STEP_EVENT_ABORTED, STEP_OPEN },
	{ IN(STEP_APPLYING) | DECIDED_WRITING, STEP_EVENT_ABORTED, TRANSITION_STAYS },
	{ UNDECIDED_WRITING | DECIDED_WRITING, STEP_EVENT_CANCELLED, STEP_OPEN },
};

static const char *const states[STEP_STATES] = {
	[STEP_OPEN] = "open",
	[STEP_CLOSING] = "closing",
	[STEP_MEASURING] = "measuring",
	[STEP_REDUCED] = "reduced",
	[STEP_APPLYING] = "applying",
	[WRITING_ENTERED] = "writing entered",
	[WRITING_OPEN] = "writing open",
	[WRITING_DECIDED] = "writing decided",
	[WRITING_FLUSHING] = "writing flushing",
	[WRITING_PLACING] = "writing placing",
	[WRITING_APPLYING] = "writing applying",
};

static const char *const events[STEP_EVENTS] = {
	[STEP_EVENT_CLOSED] = "a rank closes its part",
	[STEP_EVENT_ENTERED] = "a rank comes to write",
	[STEP_EVENT_COMPLETE] = "all parts are closed and summed",
	[STEP_EVENT_HANDED_OUT] = "ranks may write what is theirs",
	[STEP_EVENT_DECIDED] = "it is decided",
	[STEP_EVENT_FLUSH] = "the store lacks values",
	[STEP_EVENT_PLACE] = "nobody reads the old values",
	[STEP_EVENT_APPLY] = "all values are in their places",
	[STEP_EVENT_APPLIED] = "its sweep has ended",
	[STEP_EVENT_FAILED] = "it cannot be taken",
	[STEP_EVENT_ABORTED] = "the epoch ends",
	[STEP_EVENT_CANCELLED] = "the job breaks or is dropped",
};

const struct transition_table step_table = TRANSITION_TABLE(states, events, rows);

void step_happens(struct job *job, enum step_event event)
{
	enum step_state before = job->current.state;

	job->current.state = transition_take(&step_table, before, event);
	if (before != job->current.state)
		log_debug("job %s, step %llu: %s, so it was %s and is %s", job->name,
			  (unsigned long long)job->decided, events[event], states[before],
			  states[job->current.state]);
}
