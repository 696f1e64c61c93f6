#include "daemon/life/idle.h"

#include <errno.h>
#include <event2/event.h>

#include "common/clock.h"
#include "common/size.h"
#include "daemon/durability/durability.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/life.h"
#include "daemon/life/own.h"
#include "daemon/request/request.h"
#include "daemon/resources/resources.h"
#include "daemon/telemetry/telemetry.h"

static void arm(struct job *job, uint64_t ms)
{
	struct timeval delay = { .tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000 * 1000) };

	event_add(job->life->idle_timer, &delay);
}

/* The process of a rank that has left may live, and read what it has leased: until it does not. */
static void look_at_lingering(struct job *job)
{
	QUEUE_FOREACH (link, &job->members.lingering)
		member_release(queue_entry(link, struct member, link));
}

static bool has_come_to_rest(struct job *job)
{
	look_at_lingering(job);
	return job_is_at_rest(job) && job->decided == job->step && !durable_is_behind(job) &&
	       queue_is_empty(&job->members.lingering);
}

bool idle_release(struct job *job)
{
	uint64_t before = budget_host_bytes(job);

	if (!has_come_to_rest(job))
		return false;
	setup_release(job);
	life_step(job, LIFE_RELEASE);
	job_settle_all(job->node);
	events_of_job(
		job, EVENT_RELEASED, NULL,
		"it is idle: %llu MiB of host memory are given back, its state of step %llu stays on NVMe",
		(unsigned long long)((before - budget_host_bytes(job)) / MIB), (unsigned long long)job->step);
	return true;
}

/* Of ranks that came when there was no room for the job. */
static void release_windows(struct job *job)
{
	budget_release_host(job);
	job_settle_all(job->node);
}

static bool can_give(struct job *job)
{
	uint64_t step;

	switch (job->state) {
	case JOB_TRAINED:
		return has_come_to_rest(job);
	case JOB_BROKEN:
	case JOB_LOST:
		/* One that has a durable step comes back as that, and its files are all that it has. */
		return !durable_has_step(job, &step) && has_come_to_rest(job) && job_is_quiet(job);
	default:
		return job->state == JOB_RELEASED;
	}
}

bool idle_give(struct job *job)
{
	if (!can_give(job))
		return false;
	if (job_is_broken(job))
		/* All that is left of it is the news. */
		setup_clear(job, false);
	if (job->state != JOB_TRAINED) {
		release_windows(job);
	} else {
		/* What is in host memory was written before the commit that it has waited for, or before it
		 * was trained. */
		idle_release(job);
	}
	return true;
}

static void on_idle_timer(evutil_socket_t fd, short events, void *argument)
{
	struct job *job = argument;

	if (!job_is_idle(job))
		return;
	if (!idle_give(job))
		arm(job, 1000);
}

int idle_refuse(const struct job *job, char *message, size_t size)
{
	QUEUE_FOREACH (link, &job->members.lingering) {
		const struct member *member = queue_entry(link, struct member, link);

		/* It may read what it has leased, whether it has left the job or not. */
		if (member->client && member_has_leases(member))
			return refuse(message, size, -EBUSY,
				      "process %d has left it as rank %u, and still holds what it gathered; "
				      "end it, or have it release that",
				      (int)member->pid, member->rank);
	}
	return refuse(message, size, -EAGAIN, "it has not come to rest yet; try again");
}

/* ---- For who needs it ---- */

static bool may_release(const struct job *job)
{
	return job_is_idle(job) && (placement_may_release(job) || job_is_broken(job));
}

static bool may_give(const struct claim *claim, const struct job *job)
{
	return may_release(job) && job != claim->job &&
	       (headroom_for(claim).bound != HEADROOM_OF_USER || job->uid == claim->uid);
}

/* What the cache gives is counted there, but that of a broken job goes with the rest. */
static uint64_t bytes_of(const struct job *job)
{
	return budget_releasable_bytes(job, job_is_broken(job));
}

uint64_t idle_spare_bytes(const struct job *job)
{
	uint64_t bytes = may_release(job) ? bytes_of(job) : 0;

	return job_is_broken(job) ? size_rest(bytes, budget_cache_bytes(job)) : bytes;
}

static uint64_t spare_bytes(const struct claim *claim, bool is_at_once)
{
	uint64_t bytes = 0;

	QUEUE_FOREACH (link, &claim->node->jobs.live) {
		struct job *job = queue_entry(link, struct job, link);

		if (may_give(claim, job) && (!is_at_once || can_give(job)))
			bytes += bytes_of(job);
	}
	return bytes;
}

static struct job *find_giver(const struct claim *claim)
{
	struct job *giver = NULL;

	QUEUE_FOREACH (link, &claim->node->jobs.live) {
		struct job *job = queue_entry(link, struct job, link);

		if (may_give(claim, job) && bytes_of(job) > 0 && can_give(job) &&
		    (!giver || job->members.idle_since_ns < giver->members.idle_since_ns))
			giver = job;
	}
	return giver;
}

uint64_t idle_give_up(const struct claim *claim, uint64_t bytes)
{
	uint64_t given = 0;
	struct job *giver;

	while (given < bytes && (giver = find_giver(claim))) {
		given += bytes_of(giver);
		idle_give(giver);
	}
	return given;
}

/* ---- Begin and end ---- */

void idle_begin(struct job *job)
{
	job->members.idle_since_ns = clock_now_ns();
	if (job->node->settings.idle_release_ms == 0 || (!placement_may_release(job) && !job_is_broken(job)))
		return;
	if (!job->life->idle_timer)
		job->life->idle_timer = event_new(job->node->loop, -1, 0, on_idle_timer, job);
	/* Without a timer it only keeps its memory. */
	if (job->life->idle_timer)
		arm(job, job->node->settings.idle_release_ms);
}

void idle_end(struct job *job)
{
	if (job->life->idle_timer)
		event_free(job->life->idle_timer);
	job->life->idle_timer = NULL;
}

const struct holder idle_holder = {
	.spare_bytes = spare_bytes,
	.give_up = idle_give_up,
};
