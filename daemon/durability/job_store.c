#include "daemon/durability/job_store.h"

#include "common/log.h"
#include "daemon/durability/own.h"

#define IN(state) (1u << JOB_STORE_##state)

static const struct transition rows[] = {
	{ IN(NONE), JOB_STORE_MADE, JOB_STORE_NEW },
	{ IN(NONE), JOB_STORE_FOUND, JOB_STORE_COMMITTED },
	{ IN(NEW) | IN(COMMITTED), JOB_STORE_COMMIT, JOB_STORE_COMMITTED },
	{ IN(COMMITTED), JOB_STORE_LEAVE, JOB_STORE_LEAVING },
	{ IN(LEAVING), JOB_STORE_REMOVED, JOB_STORE_LEFT },
	{ IN(LEAVING), JOB_STORE_KEPT, JOB_STORE_ABANDONED },
	/* Nobody closes a store that writes. */
	{ IN(NEW) | IN(COMMITTED) | IN(LEFT) | IN(ABANDONED), JOB_STORE_CLOSE, JOB_STORE_NONE },
};

static const char *const states[JOB_STORE_STATES] = {
	[JOB_STORE_NONE] = "none",	 [JOB_STORE_NEW] = "new",   [JOB_STORE_COMMITTED] = "committed",
	[JOB_STORE_LEAVING] = "leaving", [JOB_STORE_LEFT] = "left", [JOB_STORE_ABANDONED] = "abandoned",
};

static const char *const events[JOB_STORE_EVENTS] = {
	[JOB_STORE_MADE] = "a store is made for the job",
	[JOB_STORE_FOUND] = "the job comes back from its store",
	[JOB_STORE_COMMIT] = "a commit ends well",
	[JOB_STORE_LEAVE] = "the job ends, and others are in the store",
	[JOB_STORE_REMOVED] = "the store has removed the job",
	[JOB_STORE_KEPT] = "the store cannot remove the job",
	[JOB_STORE_CLOSE] = "the job lets go of the store",
};

const struct transition_table job_store_table = TRANSITION_TABLE(states, events, rows);

void job_store_step(struct job *job, enum job_store_event event)
{
	enum job_store_state before = job->durability->store;

	job->durability->store = transition_take(&job_store_table, before, event);
	if (job->durability->store != before)
		log_debug("job %s of user %u: %s: its store was %s, and is %s", job->name, (unsigned)job->uid,
			  events[event], states[before], states[job->durability->store]);
}
