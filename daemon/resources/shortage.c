#include "daemon/resources/shortage.h"

#include <event2/event.h>

#include "common/clock.h"
#include "common/log.h"
#include "common/size.h"
#include "daemon/model/model.h"
#include "daemon/resources/own.h"

/* How long a segment may take to become empty before another one is tried, too. */
#define RETRY_US 100000

void shortage_init(struct shortage *shortage, struct claim claim, struct job *job)
{
	*shortage = (struct shortage){ .claim = claim, .job = job };
	queue_init(&shortage->link);
}

static void on_patience(evutil_socket_t fd, short events, void *argument)
{
	struct shortage *shortage = argument;

	/* What was to become empty does not. */
	holders_reclaim(&shortage->claim, holders_bytes_on_the_way(&shortage->claim) + 1);
	job_settle(shortage->job);
}

static void log_begin(const struct shortage *shortage)
{
	const struct job *job = shortage->job;
	unsigned long long mib = size_divide_up(shortage->bytes, MIB);

	if (shortage->claim.job)
		log_info("job %s of user %u: it waits for %llu MiB of other jobs, their caches or idle ones",
			 job->name, (unsigned)job->uid, mib);
	else
		log_info("job %s of user %u: a reader of user %u waits for %llu MiB of jobs, their caches or "
			 "idle ones",
			 job->name, (unsigned)job->uid, (unsigned)shortage->claim.uid, mib);
}

static bool begin(struct shortage *shortage)
{
	static const struct timeval interval = { .tv_usec = RETRY_US };
	struct node *node = shortage->claim.node;

	shortage->patience = event_new(node->loop, -1, EV_PERSIST, on_patience, shortage);
	if (!shortage->patience)
		return false;
	shortage->since_ns = clock_now_ns();
	queue_push(&node->resources->shortages, &shortage->link);
	log_begin(shortage);
	return event_add(shortage->patience, &interval) == 0;
}

static bool is_patient(const struct shortage *shortage)
{
	uint64_t patience_ns = shortage->claim.node->settings.cache_patience_ms * 1000000;

	return shortage->since_ns == 0 || clock_now_ns() - shortage->since_ns < patience_ns;
}

bool shortage_can_be_covered(const struct shortage *shortage, uint64_t bytes)
{
	return bytes > 0 && is_patient(shortage) && holders_bytes_at_most(&shortage->claim) >= bytes;
}

bool shortage_await(struct shortage *shortage)
{
	const struct claim *claim = &shortage->claim;
	bool may_wait = is_patient(shortage);
	uint64_t of_idle = size_rest(shortage->bytes, may_wait ? holders_bytes_at_most(claim) : 0);

	if (shortage->bytes == 0 || of_idle > holders_spare_bytes(claim, !may_wait))
		return false;
	if (shortage->since_ns == 0 && !begin(shortage))
		return false;
	holders_reclaim(claim, size_rest(shortage->bytes, holders_give_up(claim, of_idle)));
	return true;
}

void shortage_end(struct shortage *shortage)
{
	struct node *node = shortage->claim.node;

	if (shortage->since_ns == 0)
		return;
	shortage->since_ns = 0;
	event_free(shortage->patience);
	shortage->patience = NULL;
	queue_remove(&shortage->link);
	if (queue_is_empty(&node->resources->shortages))
		holders_keep_all(node);
}

bool shortage_is_awaited(const struct node *node)
{
	return !queue_is_empty(&node->resources->shortages);
}
