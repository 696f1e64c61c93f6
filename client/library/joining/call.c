/* Enters a job for a call: with a connection, which is opened again if it was lost, and in an epoch that has
 * not ended. */
#include <errno.h>

#include "client/library/joining/reopen.h"
#include "client/library/pages/left.h"
#include "common/clock.h"

/* The event follows the change of the directory at once; only a daemon that hangs takes as long as this. */
#define EVENT_DELAY_NS UINT64_C(1000000000)

/* Whether the directory says that the epoch has ended, and the event has not come yet. */
static bool awaits_end(const struct tierd_job *job)
{
	return !job->is_stale && job_is_attached(job) && job->attachment->directory->epoch != job->epoch;
}

static bool knows_end(const void *argument)
{
	return !awaits_end(argument);
}

/* JOB_AGAIN: the connection had ended, and another thread has opened the next one. */
static int check_epoch(struct tierd_job *job)
{
	bool had_to_wait = awaits_end(job);
	int r = 0;

	if (had_to_wait)
		r = connection_wait(job->node, knows_end, job, clock_now_ns() + EVENT_DELAY_NS);
	if (r == -ETIMEDOUT)
		return message_fail(-ESTALE, "epoch %u of job \"%s\" has ended; call tierd_job_ready",
				    job->epoch, job->name);
	if (r < 0)
		return r;
	if (job->is_stale)
		return message_fail_text(-ESTALE, job->stale_text);
	return had_to_wait ? JOB_AGAIN : 0;
}

static int check_once(struct tierd_job *job, enum job_need need)
{
	int r = reconnect(job->node);

	if (r == 0 && job->refusal < 0)
		r = message_fail_text(job->refusal, job->stale_text);
	if (r == 0 && need == JOB_READY)
		r = job_rejoin(job);
	if (r == 0 && need >= JOB_LIVE)
		r = check_epoch(job);
	if (r == 0 && need >= JOB_STATE && job->ready_units == 0)
		r = message_fail(-EINVAL, "job \"%s\" is not ready; call tierd_job_ready first", job->name);
	return r;
}

int job_check_copied(struct tierd_job *job)
{
	connection_hear(job->node);
	return job->node->error ? connection_check(job->node) : check_epoch(job);
}

int job_check(struct tierd_job *job, enum job_need need)
{
	return JOB_REPEAT(check_once(job, need));
}

/* If the daemon closes the connection at this request again and again, the call fails in the end. */
#define MAX_INTERRUPTIONS 32

bool job_can_repeat(struct tierd_job *job, int r)
{
	const struct tierd_node *node = job->node;

	if (r != -ECONNRESET || node->reconnect_ms == 0 || (node->error && !node->is_lost))
		return false;
	return ++job->interruptions <= MAX_INTERRUPTIONS;
}

int job_enter(struct tierd_job *job, enum job_need need)
{
	int r = left_lock_node(job);

	if (r < 0)
		return r;
	/* A lost connection is better noticed before the call than in the middle of it. */
	if (job->node->reconnect_ms > 0)
		connection_look(job->node);
	do
		r = job_check(job, need);
	while (job_can_repeat(job, r));
	if (r < 0)
		connection_exit(job->node);
	return r;
}

int job_finish(struct tierd_job *job, int r)
{
	/* Opens the connection again, so that the message says at which step the job is. */
	if (r == -ESTALE && job->node->is_lost) {
		int checked = job_check(job, JOB_LIVE);

		r = checked < 0 ? checked : r;
	}
	if (r != -ECONNRESET)
		job->interruptions = 0;
	else if (job_can_repeat(job, r))
		r = JOB_AGAIN;
	connection_exit(job->node);
	return r;
}
