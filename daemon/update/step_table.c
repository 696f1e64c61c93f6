/* The states of a step as a table. */
#include "daemon/update/step_table.h"

#include <assert.h>
#include <stddef.h>

#include "common/cleanup.h"
#include "common/log.h"

struct transition {
	enum step_state state;
	enum step_event event;
	enum step_state next;
};

static const struct transition transitions[] = {
	{ STEP_OPEN, STEP_EVENT_CLOSED, STEP_CLOSING },
	{ STEP_OPEN, STEP_EVENT_ENTERED, WRITING_ENTERED },
	{ STEP_OPEN, STEP_EVENT_ABORTED, STEP_OPEN },

	{ STEP_CLOSING, STEP_EVENT_CLOSED, STEP_CLOSING },
	{ STEP_CLOSING, STEP_EVENT_COMPLETE, STEP_MEASURING },
	/* Its ranks drop the gradients: there is nothing to measure. */
	{ STEP_CLOSING, STEP_EVENT_DECIDED, STEP_APPLYING },
	{ STEP_CLOSING, STEP_EVENT_FAILED, STEP_OPEN },
	{ STEP_CLOSING, STEP_EVENT_ABORTED, STEP_OPEN },

	{ STEP_MEASURING, STEP_EVENT_HANDED_OUT, STEP_REDUCED },
	{ STEP_MEASURING, STEP_EVENT_DECIDED, STEP_APPLYING },
	{ STEP_MEASURING, STEP_EVENT_FAILED, STEP_OPEN },
	{ STEP_MEASURING, STEP_EVENT_ABORTED, STEP_OPEN },

	{ STEP_REDUCED, STEP_EVENT_DECIDED, STEP_APPLYING },
	{ STEP_REDUCED, STEP_EVENT_ABORTED, STEP_OPEN },

	{ STEP_APPLYING, STEP_EVENT_APPLIED, STEP_OPEN },
	{ STEP_APPLYING, STEP_EVENT_ABORTED, STEP_APPLYING },

	{ WRITING_ENTERED, STEP_EVENT_ENTERED, WRITING_ENTERED },
	{ WRITING_ENTERED, STEP_EVENT_HANDED_OUT, WRITING_OPEN },
	{ WRITING_ENTERED, STEP_EVENT_ABORTED, STEP_OPEN },
	{ WRITING_ENTERED, STEP_EVENT_CANCELLED, STEP_OPEN },

	{ WRITING_OPEN, STEP_EVENT_DECIDED, WRITING_DECIDED },
	{ WRITING_OPEN, STEP_EVENT_FAILED, STEP_OPEN },
	{ WRITING_OPEN, STEP_EVENT_ABORTED, STEP_OPEN },
	{ WRITING_OPEN, STEP_EVENT_CANCELLED, STEP_OPEN },

	{ WRITING_DECIDED, STEP_EVENT_FLUSH, WRITING_FLUSHING },
	{ WRITING_DECIDED, STEP_EVENT_PLACE, WRITING_PLACING },
	{ WRITING_DECIDED, STEP_EVENT_ABORTED, WRITING_DECIDED },
	{ WRITING_DECIDED, STEP_EVENT_CANCELLED, STEP_OPEN },

	{ WRITING_FLUSHING, STEP_EVENT_PLACE, WRITING_PLACING },
	{ WRITING_FLUSHING, STEP_EVENT_ABORTED, WRITING_FLUSHING },
	{ WRITING_FLUSHING, STEP_EVENT_CANCELLED, STEP_OPEN },

	{ WRITING_PLACING, STEP_EVENT_APPLY, WRITING_APPLYING },
	{ WRITING_PLACING, STEP_EVENT_ABORTED, WRITING_PLACING },
	{ WRITING_PLACING, STEP_EVENT_CANCELLED, STEP_OPEN },

	{ WRITING_APPLYING, STEP_EVENT_APPLIED, STEP_OPEN },
	{ WRITING_APPLYING, STEP_EVENT_ABORTED, WRITING_APPLYING },
	{ WRITING_APPLYING, STEP_EVENT_CANCELLED, STEP_OPEN },
};

const char *step_state_name(enum step_state state)
{
	static const char *const names[STEP_STATES] = {
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

	return names[state];
}

const char *step_event_name(enum step_event event)
{
	static const char *const names[STEP_EVENTS] = {
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

	return names[event];
}

bool step_find_next(enum step_state state, enum step_event event, enum step_state *ret_next)
{
	for (size_t i = 0; i < ARRAY_LENGTH(transitions); i++)
		if (transitions[i].state == state && transitions[i].event == event) {
			*ret_next = transitions[i].next;
			return true;
		}
	return false;
}

void step_happens(struct job *job, enum step_event event)
{
	enum step_state before = job->current.state;
	bool is_known = step_find_next(before, event, &job->current.state);

	assert(is_known);
	(void)is_known;
	if (before != job->current.state)
		log_debug("job %s, step %llu: %s, so it was %s and is %s", job->name,
			  (unsigned long long)job->decided, step_event_name(event), step_state_name(before),
			  step_state_name(job->current.state));
}
