#include "daemon/life/state.h"

#include "common/log.h"
#include "daemon/durability/durability.h"
#include "daemon/life/own.h"
#include "daemon/resources/resources.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/update.h"
#include "daemon/values/values.h"

#define IN(state) (1u << (state))
#define MADE (IN(JOB_TRAINED) | IN(JOB_RELEASED) | IN(JOB_RETURNING))
#define UNMADE (IN(JOB_FORMING) | IN(JOB_PLANNING) | IN(JOB_FILLING) | IN(JOB_INITIALIZING))
#define USELESS (IN(JOB_BROKEN) | IN(JOB_LOST))
#define KEPT (IN(JOB_CLOSED) | IN(JOB_REPLACED) | IN(JOB_REOPENING))
#define ENDING (IN(JOB_DROPPED) | KEPT)
#define PRESENT (UNMADE | MADE | USELESS)

/* It stays in the state that it has: what was under way when the job broke, or was to end, comes home. */
#define STAYS JOB_STATES

struct transition {
	unsigned from; /* states, as IN() has them */
	unsigned event, to;
	void (*action)(struct job *job); /* once it has that state; or NULL */
};

static void end(struct job *job);

static const struct transition life[] = {
	{ IN(JOB_FORMING), LIFE_PLAN, JOB_PLANNING },
	{ IN(JOB_PLANNING), LIFE_PLANNED, JOB_FILLING },
	{ IN(JOB_PLANNING), LIFE_UNPLANNED, JOB_FORMING },
	{ IN(JOB_FILLING), LIFE_INITIALIZE, JOB_INITIALIZING },
	{ IN(JOB_INITIALIZING), LIFE_INITIALIZED, JOB_TRAINED },
	{ IN(JOB_FORMING), LIFE_RESTORE, JOB_RELEASED },
	{ IN(JOB_FORMING), LIFE_LOSE, JOB_LOST },

	{ IN(JOB_TRAINED), LIFE_RELEASE, JOB_RELEASED },
	{ IN(JOB_RELEASED), LIFE_PLAN, JOB_RETURNING },
	{ IN(JOB_RETURNING), LIFE_PLANNED, JOB_TRAINED },
	{ IN(JOB_RETURNING), LIFE_UNPLANNED, JOB_RELEASED },

	{ UNMADE | MADE, LIFE_BREAK, JOB_BROKEN },
	{ PRESENT, LIFE_DROP, JOB_DROPPED, end },
	{ PRESENT, LIFE_CLOSE, JOB_CLOSED, end },
	{ MADE | USELESS, LIFE_REPLACE, JOB_REPLACED, end },
	{ MADE | USELESS, LIFE_REOPEN, JOB_REOPENING, end },
	{ IN(JOB_REPLACED), LIFE_SUPERSEDE, JOB_DROPPED },
	{ KEPT, LIFE_REOPEN, JOB_REOPENING },

	{ IN(JOB_BROKEN) | ENDING, LIFE_PLANNED, STAYS },
	{ IN(JOB_BROKEN) | ENDING, LIFE_UNPLANNED, STAYS },
	{ IN(JOB_BROKEN) | ENDING, LIFE_INITIALIZED, STAYS },
};

#define EPOCH_STATES 3

static const struct transition epochs[] = {
	{ IN(EPOCH_NONE) | IN(EPOCH_OVER), EPOCH_BEGIN, EPOCH_LIVE },
	{ IN(EPOCH_LIVE), EPOCH_END, EPOCH_OVER },
	{ IN(EPOCH_NONE), EPOCH_RESUME, EPOCH_OVER },
};

static const struct transition *find(const struct transition *table, unsigned count, unsigned state,
				     unsigned event)
{
	for (unsigned i = 0; i < count; i++)
		if (table[i].event == event && (table[i].from & IN(state)))
			return &table[i];
	return NULL;
}

static const struct transition *find_life(enum job_state state, enum life_event event)
{
	return find(life, ARRAY_LENGTH(life), state, event);
}

static const struct transition *find_epoch(enum epoch_state state, enum epoch_event event)
{
	return find(epochs, ARRAY_LENGTH(epochs), state, event);
}

bool life_next(enum job_state state, enum life_event event, enum job_state *ret_next)
{
	const struct transition *transition = find_life(state, event);

	if (transition)
		*ret_next = transition->to == STAYS ? state : transition->to;
	return transition != NULL;
}

bool epoch_next(enum epoch_state state, enum epoch_event event, enum epoch_state *ret_next)
{
	const struct transition *transition = find_epoch(state, event);

	if (transition)
		*ret_next = transition->to;
	return transition != NULL;
}

/* ---- Steps ---- */

static void tell(const struct job *job, enum log_level level, const char *what, const char *event,
		 const char *from, const char *to)
{
	log_about(level, &(struct log_fields){ .job = job->name, .user = &job->uid },
		  "job %s of user %u: %s: %s, from %s to %s", job->name, (unsigned)job->uid, what, event,
		  from, to);
}

static void refuse_step(struct job *job, const char *event, const char *state)
{
	tell(job, LOG_LEVEL_ERROR,
	     "its life has no such change; this is a mistake of tierd: please report it", event, state,
	     "nowhere");
	job->node->life->mistakes++;
}

void life_step(struct job *job, enum life_event event)
{
	const struct transition *transition = find_life(job->state, event);
	enum job_state from = job->state;

	if (!transition) {
		refuse_step(job, life_event_name(event), life_state_name(from));
		return;
	}
	if (transition->to != STAYS)
		job->state = transition->to;
	tell(job, LOG_LEVEL_DEBUG, "its life", life_event_name(event), life_state_name(from),
	     life_state_name(job->state));
	if (transition->action)
		transition->action(job);
}

void job_drop(struct job *job)
{
	life_step(job, LIFE_DROP);
}

void epoch_step(struct job *job, enum epoch_event event)
{
	const struct transition *transition = find_epoch(job->epoch.state, event);
	enum epoch_state from = job->epoch.state;

	if (!transition) {
		refuse_step(job, epoch_event_name(event), epoch_state_name(from));
		return;
	}
	job->epoch.state = transition->to;
	tell(job, LOG_LEVEL_DEBUG, "its epoch", epoch_event_name(event), epoch_state_name(from),
	     epoch_state_name(job->epoch.state));
}

static void end(struct job *job)
{
	queue_remove(&job->link);
	queue_push(&job->node->jobs.dying, &job->link);
	/* Whoever asks again finds no job. */
	store_tasks_end(job);
	budget_end_wait(job);
	sweep_cancel(job);
	draft_cancel(job);
	job_settle(job);
}

/* ---- Names ---- */

const char *life_state_name(enum job_state state)
{
	static const char *const names[JOB_STATES] = {
		[JOB_FORMING] = "forming",	     [JOB_PLANNING] = "planning", [JOB_FILLING] = "filling",
		[JOB_INITIALIZING] = "initializing", [JOB_TRAINED] = "trained",	  [JOB_RELEASED] = "released",
		[JOB_RETURNING] = "returning",	     [JOB_BROKEN] = "broken",	  [JOB_LOST] = "lost",
		[JOB_DROPPED] = "dropped",	     [JOB_CLOSED] = "closed",	  [JOB_REPLACED] = "replaced",
		[JOB_REOPENING] = "reopening",
	};

	return names[state];
}

const char *life_event_name(enum life_event event)
{
	static const char *const names[LIFE_EVENTS] = {
		[LIFE_PLAN] = "plan",
		[LIFE_PLANNED] = "planned",
		[LIFE_UNPLANNED] = "unplanned",
		[LIFE_INITIALIZE] = "initialize",
		[LIFE_INITIALIZED] = "initialized",
		[LIFE_RESTORE] = "restore",
		[LIFE_LOSE] = "lose",
		[LIFE_RELEASE] = "release",
		[LIFE_BREAK] = "break",
		[LIFE_DROP] = "drop",
		[LIFE_CLOSE] = "close",
		[LIFE_REPLACE] = "replace",
		[LIFE_SUPERSEDE] = "supersede",
		[LIFE_REOPEN] = "reopen",
	};

	return names[event];
}

const char *epoch_state_name(enum epoch_state state)
{
	static const char *const names[EPOCH_STATES] = { "none", "live", "over" };

	return names[state];
}

const char *epoch_event_name(enum epoch_event event)
{
	static const char *const names[EPOCH_EVENTS] = { "begin", "end", "resume" };

	return names[event];
}
