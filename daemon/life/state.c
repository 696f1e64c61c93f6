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

static const struct transition life_rows[] = {
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
	{ PRESENT, LIFE_DROP, JOB_DROPPED },
	{ PRESENT, LIFE_CLOSE, JOB_CLOSED },
	{ MADE | USELESS, LIFE_REPLACE, JOB_REPLACED },
	{ MADE | USELESS, LIFE_REOPEN, JOB_REOPENING },
	{ IN(JOB_REPLACED), LIFE_SUPERSEDE, JOB_DROPPED },
	{ KEPT, LIFE_REOPEN, JOB_REOPENING },

	/* What was under way when the job broke, or was to end, comes home. */
	{ IN(JOB_BROKEN) | ENDING, LIFE_PLANNED, TRANSITION_STAYS },
	{ IN(JOB_BROKEN) | ENDING, LIFE_UNPLANNED, TRANSITION_STAYS },
	{ IN(JOB_BROKEN) | ENDING, LIFE_INITIALIZED, TRANSITION_STAYS },
};

static const struct transition epoch_rows[] = {
	{ IN(EPOCH_NONE) | IN(EPOCH_OVER), EPOCH_BEGIN, EPOCH_LIVE },
	{ IN(EPOCH_LIVE), EPOCH_END, EPOCH_OVER },
	{ IN(EPOCH_NONE), EPOCH_RESUME, EPOCH_OVER },
};

static const char *const life_states[JOB_STATES] = {
	[JOB_FORMING] = "forming",	     [JOB_PLANNING] = "planning", [JOB_FILLING] = "filling",
	[JOB_INITIALIZING] = "initializing", [JOB_TRAINED] = "trained",	  [JOB_RELEASED] = "released",
	[JOB_RETURNING] = "returning",	     [JOB_BROKEN] = "broken",	  [JOB_LOST] = "lost",
	[JOB_DROPPED] = "dropped",	     [JOB_CLOSED] = "closed",	  [JOB_REPLACED] = "replaced",
	[JOB_REOPENING] = "reopening",
};

static const char *const life_events[LIFE_EVENTS] = {
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

static const char *const epoch_states[] = { "none", "live", "over" };
static const char *const epoch_events[] = { "begin", "end", "resume" };

const struct transition_table life_table = TRANSITION_TABLE(life_states, life_events, life_rows);
const struct transition_table epoch_table = TRANSITION_TABLE(epoch_states, epoch_events, epoch_rows);

/* ---- Steps ---- */

static void tell(const struct job *job, enum log_level level, const char *what, const char *event,
		 const char *from, const char *to)
{
	log_about(level, &(struct log_fields){ .job = job->name, .user = &job->uid },
		  "job %s of user %u: %s: %s, from %s to %s", job->name, (unsigned)job->uid, what, event,
		  from, to);
}

/* False: the state does not have the event. what: that changes. */
static bool find_next(struct job *job, const struct transition_table *table, const char *what, unsigned state,
		      unsigned event, unsigned *ret_next)
{
	if (!transition_find(table, state, event, ret_next)) {
		tell(job, LOG_LEVEL_ERROR,
		     "its life has no such change; this is a mistake of tierd: please report it",
		     table->events[event], table->states[state], "nowhere");
		job->node->life->mistakes++;
		return false;
	}
	tell(job, LOG_LEVEL_DEBUG, what, table->events[event], table->states[state],
	     table->states[*ret_next]);
	return true;
}

static void end(struct job *job)
{
	queue_remove(&job->link);
	queue_push(&job->node->jobs.dying, &job->link);
	/* Whoever asks again finds no job. */
	store_tasks_end(job);
	shortage_end(budget_shortage(job));
	sweep_cancel(job);
	draft_cancel(job);
	job_settle(job);
}

void life_step(struct job *job, enum life_event event)
{
	bool was_ending = job_is_ending(job);
	unsigned next;

	if (!find_next(job, &life_table, "its life", job->state, event, &next))
		return;
	job->state = next;
	if (!was_ending && job_is_ending(job))
		end(job);
}

void job_drop(struct job *job)
{
	life_step(job, LIFE_DROP);
}

void epoch_step(struct job *job, enum epoch_event event)
{
	unsigned next;

	if (find_next(job, &epoch_table, "its epoch", job->epoch.state, event, &next))
		job->epoch.state = next;
}
