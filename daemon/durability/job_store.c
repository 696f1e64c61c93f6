#include "daemon/durability/job_store.h"

#include <assert.h>

#include "common/cleanup.h"
#include "common/log.h"
#include "daemon/durability/own.h"

static const struct transition {
	enum job_store_state state;
	enum job_store_event event;
	enum job_store_state next;
} transitions[] = {
	{ JOB_STORE_NONE, JOB_STORE_MADE, JOB_STORE_NEW },
	{ JOB_STORE_NONE, JOB_STORE_FOUND, JOB_STORE_COMMITTED },

	{ JOB_STORE_NEW, JOB_STORE_COMMIT, JOB_STORE_COMMITTED },
	{ JOB_STORE_NEW, JOB_STORE_CLOSE, JOB_STORE_NONE },

	{ JOB_STORE_COMMITTED, JOB_STORE_COMMIT, JOB_STORE_COMMITTED },
	{ JOB_STORE_COMMITTED, JOB_STORE_LEAVE, JOB_STORE_LEAVING },
	{ JOB_STORE_COMMITTED, JOB_STORE_CLOSE, JOB_STORE_NONE },

	/* Nobody closes a store that writes. */
	{ JOB_STORE_LEAVING, JOB_STORE_REMOVED, JOB_STORE_LEFT },
	{ JOB_STORE_LEAVING, JOB_STORE_KEPT, JOB_STORE_ABANDONED },

	{ JOB_STORE_LEFT, JOB_STORE_CLOSE, JOB_STORE_NONE },
	{ JOB_STORE_ABANDONED, JOB_STORE_CLOSE, JOB_STORE_NONE },
};

const char *job_store_state_name(enum job_store_state state)
{
	static const char *const names[JOB_STORE_STATES] = {
		[JOB_STORE_NONE] = "none",	     [JOB_STORE_NEW] = "new",
		[JOB_STORE_COMMITTED] = "committed", [JOB_STORE_LEAVING] = "leaving",
		[JOB_STORE_LEFT] = "left",	     [JOB_STORE_ABANDONED] = "abandoned",
	};

	return names[state];
}

const char *job_store_event_name(enum job_store_event event)
{
	static const char *const names[JOB_STORE_EVENTS] = {
		[JOB_STORE_MADE] = "a store is made for the job",
		[JOB_STORE_FOUND] = "the job comes back from its store",
		[JOB_STORE_COMMIT] = "a commit ends well",
		[JOB_STORE_LEAVE] = "the job ends, and others are in the store",
		[JOB_STORE_REMOVED] = "the store has removed the job",
		[JOB_STORE_KEPT] = "the store cannot remove the job",
		[JOB_STORE_CLOSE] = "the job lets go of the store",
	};

	return names[event];
}

bool job_store_find_next(enum job_store_state state, enum job_store_event event,
			 enum job_store_state *ret_next)
{
	for (size_t i = 0; i < ARRAY_LENGTH(transitions); i++)
		if (transitions[i].state == state && transitions[i].event == event) {
			*ret_next = transitions[i].next;
			return true;
		}
	return false;
}

void job_store_step(struct job *job, enum job_store_event event)
{
	enum job_store_state before = job->durability->store, next = before;
	bool is_known = job_store_find_next(before, event, &next);

	assert(is_known);
	(void)is_known;
	job->durability->store = next;
	if (next != before)
		log_debug("job %s of user %u: %s: its store was %s, and is %s", job->name, (unsigned)job->uid,
			  job_store_event_name(event), job_store_state_name(before),
			  job_store_state_name(next));
}
