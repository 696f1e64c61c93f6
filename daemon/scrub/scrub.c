/* One scan at a time for the whole node, of whatever job is the furthest behind its pace, a few extents of
 * it. Each daemon begins somewhere else: one that is often started again would never get to the end. */
#include "daemon/scrub/scrub.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <time.h>

#include "common/clock.h"
#include "daemon/model/model.h"
#include "daemon/residency/residency.h"
#include "daemon/scrub/own.h"
#include "daemon/scrub/scan.h"
#include "daemon/telemetry/telemetry.h"

#define EXTENTS_AT_ONCE 16
#define SECOND_NS UINT64_C(1000000000)
/* Jobs come without a word to it. */
#define LOOK_NS (60 * SECOND_NS)

static uint64_t extents_of(const struct job *job)
{
	return store_extents(job_nvme_store(job));
}

static bool can_be_read(const struct job *job)
{
	char message[700];

	return !job_is_broken(job) && scan_check(job, message, sizeof(message)) == 0;
}

/* ---- What is next ---- */

static void arm(struct node_scrub *scrub, uint64_t delay_ns)
{
	struct timeval delay = { .tv_sec = (time_t)(delay_ns / SECOND_NS),
				 .tv_usec = (suseconds_t)(delay_ns % SECOND_NS / 1000) };

	event_add(scrub->timer, &delay);
}

/* The share of it that is due and not done: of a small job, too, some time. */
static double lag_of(struct node_scrub *scrub, struct job *job, uint64_t now_ns)
{
	uint64_t extents = extents_of(job);

	if (job->scrub->pace.began_ns == 0)
		job->scrub->pace.began_ns = now_ns;
	return (double)scrub_pace_due(&job->scrub->pace, extents, scrub->period_ns, now_ns) / (double)extents;
}

static struct job *most_behind(struct node_scrub *scrub, uint64_t now_ns)
{
	struct job *found = NULL;
	double most = 0;

	QUEUE_FOREACH (link, &scrub->node->jobs.live) {
		struct job *job = queue_entry(link, struct job, link);
		double lag = can_be_read(job) ? lag_of(scrub, job, now_ns) : 0;

		if (lag > most) {
			most = lag;
			found = job;
		}
	}
	return found;
}

static uint64_t next_ns(const struct node_scrub *scrub, uint64_t now_ns)
{
	uint64_t next = scrub->period_ns > 0 ? now_ns + LOOK_NS : UINT64_MAX;

	QUEUE_FOREACH (link, &scrub->node->jobs.live) {
		const struct job *job = queue_entry(link, struct job, link);
		uint64_t its = can_be_read(job) ? scrub_pace_next_ns(&job->scrub->pace, extents_of(job),
								     scrub->period_ns, now_ns)
						: UINT64_MAX;

		next = its < next ? its : next;
	}
	return next;
}

/* The first extent is this daemon's own; a scan ends where they end. */
static int start(struct node_scrub *scrub, struct job *job, uint64_t now_ns)
{
	uint64_t extents = extents_of(job);
	uint64_t first = (scrub->node->incarnation % extents + job->scrub->pace.done) % extents;
	uint64_t count = scrub_pace_due(&job->scrub->pace, extents, scrub->period_ns, now_ns);

	count = count < EXTENTS_AT_ONCE ? count : EXTENTS_AT_ONCE;
	count = count < extents - first ? count : extents - first;
	return scan_start(&scrub->scan, job, first, first + count);
}

static void look(struct node_scrub *scrub)
{
	uint64_t now_ns = clock_now_ns(), next;
	struct job *job;

	if (scrub->is_running || scrub->node->is_stopping)
		return;
	job = most_behind(scrub, now_ns);
	scrub->is_running = job && start(scrub, job, now_ns) == 0;
	if (scrub->is_running)
		return;
	next = job ? now_ns + LOOK_NS : next_ns(scrub, now_ns);
	if (next == UINT64_MAX)
		event_del(scrub->timer);
	else
		arm(scrub, next > now_ns + SECOND_NS ? next - now_ns : SECOND_NS);
}

/* ---- What was read ---- */

static void end_pass(struct job *job)
{
	struct job_scrub *state = job->scrub;

	state->passes++;
	state->ended_s = (uint64_t)time(NULL);
	events_of_job(job, EVENT_SCRUBBED, NULL,
		      "all that it has on NVMe was read, %llu extents; damaged: %u",
		      (unsigned long long)extents_of(job), damaged_blocks(&job->scrub->damaged));
}

static void on_found(struct scan *scan, const struct store_flaw *flaw)
{
	damage_tell(scan->job, flaw, "scrub");
}

static void on_done(struct scan *scan, int status)
{
	struct node_scrub *scrub = container_of(scan, struct node_scrub, scan);
	struct job *job = scan->job;

	scrub->is_running = false;
	if (status == 0 &&
	    scrub_pace_advance(&job->scrub->pace, scan->end - scan->first, extents_of(job), clock_now_ns()))
		end_pass(job);
	arm(scrub, 0);
}

/* ---- Life ---- */

static void on_timer(evutil_socket_t fd, short events, void *argument)
{
	look(argument);
}

int scrub_new(struct job *job)
{
	job->scrub = calloc(1, sizeof(*job->scrub));
	return job->scrub ? 0 : -ENOMEM;
}

void scrub_free(struct job *job)
{
	job->scrub = scrub_history_free(job->scrub);
}

struct job_scrub *scrub_history_free(struct job_scrub *history)
{
	if (history)
		damaged_clear(&history->damaged);
	free(history);
	return NULL;
}

void scrub_take_over(struct job *job, struct job_scrub *history)
{
	scrub_free(job);
	job->scrub = history;
}

bool scrub_is_quiet(const struct job *job)
{
	return job->scrub->scans == 0;
}

uint32_t scrub_damaged_blocks(const struct job *job)
{
	return damaged_blocks(&job->scrub->damaged);
}

int scrub_open(struct node *node, uint64_t period_ns)
{
	struct node_scrub *scrub = calloc(1, sizeof(*scrub));

	if (!scrub)
		return -ENOMEM;
	scrub->node = node;
	scrub->period_ns = period_ns;
	scrub->scan.found = on_found;
	scrub->scan.done = on_done;
	queue_init(&scrub->verifies);
	scrub->timer = event_new(node->loop, -1, 0, on_timer, scrub);
	if (!scrub->timer) {
		free(scrub);
		return -ENOMEM;
	}
	arm(scrub, SECOND_NS);
	node->scrub = scrub;
	return 0;
}

void scrub_close(struct node *node)
{
	struct node_scrub *scrub = TAKE_PTR(node->scrub);

	if (!scrub)
		return;
	event_free(scrub->timer);
	scan_clear(&scrub->scan);
	free(scrub);
}

uint64_t scrub_period_ns(unsigned days)
{
	return days * 86400 * SECOND_NS;
}

void scrub_set_period(struct node *node, uint64_t period_ns)
{
	node->scrub->period_ns = period_ns;
	look(node->scrub);
}

/* ---- Its clients ---- */

#define JOBS_PER_REPLY 704

enum { SCRUB_LOOK, SCRUB_HURRY, SCRUB_STOP };

static void apply(struct job *job, uint32_t action)
{
	if (action == SCRUB_LOOK)
		return;
	job->scrub->pace.is_hurried = action == SCRUB_HURRY;
	if (job->scrub->pace.began_ns == 0)
		job->scrub->pace.began_ns = clock_now_ns();
}

static void fill(const struct job *job, Tierd__Wire__ScrubEntry *entry)
{
	tierd__wire__scrub_entry__init(entry);
	entry->job = (char *)job->name;
	entry->uid = job->uid;
	entry->extents = extents_of(job);
	entry->done = job->scrub->pace.done;
	entry->is_hurried = job->scrub->pace.is_hurried;
	entry->passes = job->scrub->passes;
	entry->ended_s = job->scrub->ended_s;
	entry->damaged_blocks = damaged_blocks(&job->scrub->damaged);
}

static void reply(struct pending *pending, const struct node_scrub *scrub, Tierd__Wire__ScrubEntry **entries,
		  size_t count)
{
	Tierd__Wire__ScrubReply body = TIERD__WIRE__SCRUB_REPLY__INIT;

	body.period_s = scrub->period_ns / SECOND_NS;
	body.jobs = entries;
	body.n_jobs = count;
	pending_reply(pending, WIRE_REPLY(SCRUB, scrub, &body));
}

static void request_of_one(struct pending *pending, struct node_scrub *scrub,
			   const Tierd__Wire__Scrub *request)
{
	struct job *job = access_find(pending, request->job, request->has_owner, request->owner);
	Tierd__Wire__ScrubEntry entry, *entries[] = { &entry };
	char message[700];
	int r;

	if (!job)
		return;
	r = scan_check(job, message, sizeof(message));
	if (request->action != SCRUB_LOOK && !access_may_drop(job, pending_port(pending))) {
		pending_error(pending, -EPERM, "job %s is for its owner to scrub, user %u", job->name,
			      (unsigned)job->uid);
	} else if (r < 0) {
		pending_error(pending, r, "%s", message);
	} else {
		apply(job, request->action);
		fill(job, &entry);
		reply(pending, scrub, entries, 1);
	}
}

/* Of all that the peer may see, or rule. */
static void request_of_all(struct pending *pending, struct node_scrub *scrub, uint32_t action)
{
	_cleanup_free_ Tierd__Wire__ScrubEntry *entries = calloc(JOBS_PER_REPLY, sizeof(*entries));
	_cleanup_free_ Tierd__Wire__ScrubEntry **pointers = calloc(JOBS_PER_REPLY, sizeof(*pointers));
	const struct port *port = pending_port(pending);
	size_t count = 0;

	if (!entries || !pointers) {
		pending_error(pending, -ENOMEM, "out of memory");
		return;
	}
	QUEUE_FOREACH (link, &scrub->node->jobs.live) {
		struct job *job = queue_entry(link, struct job, link);

		if (!access_may_see(job, port) || !can_be_read(job))
			continue;
		if (access_may_drop(job, port))
			apply(job, action);
		if (count == JOBS_PER_REPLY)
			continue;
		fill(job, &entries[count]);
		pointers[count] = &entries[count];
		count++;
	}
	reply(pending, scrub, pointers, count);
}

void scrub_request(struct pending *pending, const Tierd__Wire__Scrub *request)
{
	struct node_scrub *scrub = pending_node(pending)->scrub;

	if (request->action > SCRUB_STOP)
		pending_error(pending, -EINVAL, "%u is nothing that a scrub does", request->action);
	else if (request->job[0] != '\0')
		request_of_one(pending, scrub, request);
	else
		request_of_all(pending, scrub, request->action);
	look(scrub);
}
