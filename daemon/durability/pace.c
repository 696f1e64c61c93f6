/* When a commit of a job's applied steps is due. Each step is, where a commit costs no more than the step
 * itself has written; else those of some seconds together, unless somebody waits for one. */
#include <errno.h>
#include <event2/event.h>

#include "common/clock.h"
#include "daemon/durability/durable.h"
#include "daemon/durability/own.h"

/* A commit of state in host memory writes all of it. */
#define HOST_SECONDS 60

uint32_t pace_durability(const struct job *job)
{
	if (job->location.durability != DURABILITY_DEFAULT)
		return job->location.durability;
	return job->location.has_nvme_optimizer ? DURABILITY_STEP : HOST_SECONDS;
}

uint32_t pace_seconds(const struct job *job)
{
	uint32_t durability = pace_durability(job);

	return durability <= DURABILITY_MOST_SECONDS ? durability : 0;
}

static void on_timer(evutil_socket_t fd, short events, void *argument)
{
	struct pace *pace = argument;

	pace->is_due = true;
	durable_advance(pace->job);
}

int pace_init(struct pace *pace, struct job *job)
{
	pace->job = job;
	pace->timer = event_new(job->node->loop, -1, 0, on_timer, pace);
	return pace->timer ? 0 : -ENOMEM;
}

void pace_end(struct pace *pace)
{
	if (pace->timer)
		event_free(pace->timer);
	pace->timer = NULL;
}

void pace_note_step(struct pace *pace)
{
	struct timeval delay = { .tv_sec = pace_seconds(pace->job) };

	if (pace->applied_ns > 0)
		return;
	pace->applied_ns = clock_now_ns();
	/* One that cannot be waited for is over. */
	if (delay.tv_sec == 0 || event_add(pace->timer, &delay) < 0)
		pace->is_due = true;
}

void pace_take(struct pace *pace)
{
	event_del(pace->timer);
	pace->taken_ns = pace->applied_ns;
	pace->applied_ns = 0;
	pace->is_due = false;
}

void pace_end_commit(struct pace *pace)
{
	pace->taken_ns = 0;
}

uint64_t pace_lag_ns(const struct pace *pace)
{
	uint64_t since = pace->taken_ns ? pace->taken_ns : pace->applied_ns;

	return since ? clock_now_ns() - since : 0;
}
