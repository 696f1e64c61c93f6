#include "daemon/idle.h"

#include <event2/event.h>

#include "common/clock.h"
#include "common/size.h"
#include "daemon/budget.h"
#include "daemon/durable.h"

static void arm(struct job *job, uint64_t ms)
{
	struct timeval delay = { .tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000) };

	event_add(job->idle_timer, &delay);
}

/* The process of a rank that has left may live, and read what it has leased: until it does not. */
static void look_at_lingering(struct job *job)
{
	QUEUE_FOREACH (link, &job->lingering)
		member_release(queue_entry(link, struct member, link));
}

static bool has_come_to_rest(struct job *job)
{
	look_at_lingering(job);
	return job_is_at_rest(job) && job->decided == job->step && !durable_is_behind(job) &&
	       queue_is_empty(&job->lingering);
}

bool idle_release(struct job *job)
{
	uint64_t before = job->host_bytes;

	if (!has_come_to_rest(job))
		return false;
	setup_release(job);
	job->phase = JOB_RELEASED;
	job_settle_all(job->node);
	events_of_job(
		job, EVENT_RELEASED, NULL,
		"it is idle: %llu MiB of host memory are given back, its state of step %llu stays on NVMe",
		(unsigned long long)((before - job->host_bytes) / MIB), (unsigned long long)job->step);
	return true;
}

/* Of ranks that came when there was no room for the job. */
static void release_windows(struct job *job)
{
	budget_release_host(job);
	job_settle_all(job->node);
}

static void on_idle_timer(evutil_socket_t fd, short events, void *argument)
{
	struct job *job = argument;

	if (!job_is_idle(job))
		return;
	/* What is in host memory was written before the commit that it has waited for, or before it was
	 * trained. */
	if (job->phase == JOB_TRAINED && idle_release(job))
		return;
	if (job->phase == JOB_BROKEN && has_come_to_rest(job) && job_is_quiet(job))
		/* All that is left of it is the news. */
		setup_clear(job);
	else if (job->phase == JOB_RELEASED)
		release_windows(job);
	else
		arm(job, 1000);
}

bool idle_may_release(const struct job *job)
{
	return job->is_durable || (job->has_nvme_parameters && job->has_nvme_optimizer);
}

void idle_begin(struct job *job)
{
	job->idle_since_ns = clock_now_ns();
	if (job->node->idle_release_ms == 0 || (!idle_may_release(job) && job->phase != JOB_BROKEN))
		return;
	if (!job->idle_timer)
		job->idle_timer = event_new(job->node->loop, -1, 0, on_idle_timer, job);
	/* Without a timer it only keeps its memory. */
	if (job->idle_timer)
		arm(job, job->node->idle_release_ms);
}

void idle_end(struct job *job)
{
	if (job->idle_timer)
		event_free(job->idle_timer);
	job->idle_timer = NULL;
}
