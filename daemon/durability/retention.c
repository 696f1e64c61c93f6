#include "daemon/durability/retention.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/plural.h"
#include "common/size.h"
#include "daemon/durability/durable.h"
#include "daemon/durability/own.h"
#include "daemon/durability/snapshot.h"
#include "daemon/durability/store_task.h"
#include "daemon/request/request.h"
#include "daemon/telemetry/telemetry.h"

/* ---- Keeping steps ---- */

/* The oldest ones go first, as long as there are too many; then the step is kept. */
struct retention {
	struct store_task task;
	char name[STORE_SNAPSHOT_NAME_BYTES];
	uint64_t step;
	bool is_deleting;
};

static void print_name(uint64_t step, char name[STORE_SNAPSHOT_NAME_BYTES])
{
	snprintf(name, STORE_SNAPSHOT_NAME_BYTES, "step-%llu", (unsigned long long)step);
}

/* What a user has called otherwise is his. */
static bool is_automatic(const struct store_snapshot *snapshot)
{
	char name[STORE_SNAPSHOT_NAME_BYTES];

	print_name(snapshot->step, name);
	return strcmp(snapshot->name, name) == 0;
}

struct census {
	unsigned count, others;	 /* others: a user's */
	uint64_t oldest, newest; /* steps */
};

static struct census count_automatic(const struct job *job)
{
	struct store_snapshot snapshots[STORE_MAX_SNAPSHOTS];
	unsigned count = store_snapshots(job_nvme_store(job), snapshots);
	struct census census = { .oldest = UINT64_MAX };

	for (unsigned i = 0; i < count; i++) {
		uint64_t step = snapshots[i].step;

		if (!is_automatic(&snapshots[i])) {
			census.others++;
			continue;
		}
		census.count++;
		census.oldest = step < census.oldest ? step : census.oldest;
		census.newest = step > census.newest ? step : census.newest;
	}
	return census;
}

/* How many it may be. A user's own have their part of the room; where they have all of it the oldest would go
 * for nothing. */
static unsigned most_kept(const struct job *job, const struct census *census)
{
	unsigned room = job->options.snapshots, keep = job->options.snapshot_keep;

	return census->others < room && room - census->others < keep ? room - census->others : keep;
}

/* Where not each step is committed it is the first one that is, from there on. */
static bool is_due(const struct job *job, uint64_t step)
{
	uint64_t every = job->options.snapshot_every;

	return every > 0 && step >= job->durability->first_kept &&
	       step / every > count_automatic(job).newest / every;
}

void retention_begin(struct job *job, uint64_t step)
{
	uint64_t every = job->options.snapshot_every, beyond = every > 0 ? step % every : 0;

	job->durability->first_kept = beyond == 0 ? step : size_sum(step, every - beyond);
}

static int begin(struct store_task *task, struct store *store)
{
	struct retention *retention = container_of(task, struct retention, task);
	struct census census = count_automatic(task->job);

	/* While it waited for others, one of an earlier commit has kept the step. */
	if (!is_due(task->job, store_step(store)))
		return -EALREADY;
	retention->is_deleting = census.count >= most_kept(task->job, &census);
	retention->step = retention->is_deleting ? census.oldest : store_step(store);
	print_name(retention->step, retention->name);
	return retention->is_deleting ? store_delete_snapshot(store, retention->name, &task->request)
				      : store_snapshot(store, retention->name, &task->request);
}

static void tell(const struct retention *retention, int status)
{
	struct job *job = retention->task.job;
	struct log_fields about = { .step = &retention->step };
	bool is_told = job->durability->is_retention_missed;
	char why[SNAPSHOT_TEXT];

	job->durability->is_retention_missed = status < 0;
	if (status == 0) {
		events_of_job(job, EVENT_SNAPSHOT_TAKEN, &about, "step %llu is kept as snapshot %s",
			      (unsigned long long)retention->step, retention->name);
		return;
	}
	/* Each later step is tried, for the same reason in vain. */
	if (is_told)
		return;
	snapshot_explain(job, retention->name, status, why, sizeof(why));
	events_of_job(job, EVENT_SNAPSHOT_FAILED, &about,
		      "no snapshot is kept of step %llu, nor of later ones while that lasts: %s",
		      (unsigned long long)retention->step, why);
}

static void on_done(struct store_task *task, int status)
{
	struct retention *retention = container_of(task, struct retention, task);

	if (status == 0 && retention->is_deleting) {
		store_task_send(task);
		return;
	}
	/* It has ended, or is broken: that is told elsewhere. */
	if (status != -ESHUTDOWN && status != -EALREADY)
		tell(retention, status);
	free(retention);
}

void retention_note_commit(struct job *job)
{
	uint64_t step = store_step(job_nvme_store(job));
	struct retention *retention;

	if (!is_due(job, step))
		return;
	retention = calloc(1, sizeof(*retention));
	if (!retention) {
		events_of_job(job, EVENT_SNAPSHOT_FAILED, &(struct log_fields){ .step = &step },
			      "no snapshot is kept of step %llu, it goes on without: out of memory",
			      (unsigned long long)step);
		return;
	}
	retention->task = (struct store_task){ .job = job, .begin = begin, .done = on_done };
	store_task_send(&retention->task);
}

/* ---- The owner changes the rule ---- */

/* The job's definition says it from the next commit on, which is due at once: also of a job that nobody
 * trains, whose host memory may be released. */
struct retain {
	struct store_task task;
	uint64_t every;
	uint32_t keep;
	bool is_said; /* in the definition, whose commit is awaited */
};

void retain_overlook(const struct job *job, struct job_options *asked)
{
	if (!job->durability->is_retention_set)
		return;
	asked->snapshot_every = job->options.snapshot_every;
	asked->snapshot_keep = job->options.snapshot_keep;
}

/* No commit is on its way: the definition may be changed. The task ends, and comes again for the commit. */
static int say(struct store_task *task, struct store *store)
{
	struct retain *retain = container_of(task, struct retain, task);
	struct job *job = task->job;
	int r;

	if (retain->is_said)
		return -EALREADY;
	job->options.snapshot_every = retain->every;
	job->options.snapshot_keep = retain->keep;
	job->durability->is_retention_set = true;
	retention_begin(job, job->step);
	r = durable_redefine_now(job);
	if (r < 0)
		return r;
	retain->is_said = task->awaits_definition = true;
	return -EINPROGRESS;
}

static void reply_retained(struct retain *retain)
{
	Tierd__Wire__JobRetainReply body = TIERD__WIRE__JOB_RETAIN_REPLY__INIT;

	if (retain->every == 0)
		events_of_job(retain->task.job, EVENT_RETAINED, NULL, "user %u has it keep no step by itself",
			      (unsigned)retain->task.requester.uid);
	else
		events_of_job(retain->task.job, EVENT_RETAINED, NULL,
			      "user %u has it keep each step that %llu divides by itself, and the last %u of "
			      "those",
			      (unsigned)retain->task.requester.uid, (unsigned long long)retain->every,
			      retain->keep);
	body.every = retain->every;
	body.keep = retain->keep;
	store_task_reply(&retain->task, WIRE_REPLY(JOB_RETAIN, job_retain, &body));
}

static void on_said(struct store_task *task, int status)
{
	struct retain *retain = container_of(task, struct retain, task);

	if (status == -EINPROGRESS) {
		store_task_send(task);
		return;
	}
	if (status == -EALREADY)
		reply_retained(retain);
	else
		snapshot_fail(task, "", status);
	store_task_free(task);
}

static int check(const struct job *job, const struct port *port, const Tierd__Wire__JobRetain *request,
		 char *message, size_t size)
{
	uint32_t room = job->options.snapshots;
	int r;

	if (!access_may_drop(job, port))
		return refuse(message, size, -EPERM,
			      "which steps of job %s are kept is for its owner to say, user %u", job->name,
			      (unsigned)job->uid);
	r = snapshot_check_change(job, message, size);
	if (r < 0)
		return r;
	if (request->every > 0 && room == 0)
		return refuse(message, size, -EINVAL,
			      "job %s has no room for snapshots; make some (tierctl reserve)", job->name);
	if (request->keep > room)
		return refuse(message, size, -EINVAL,
			      "%u steps of job %s cannot be kept: it has room for %u snapshot%s; make more "
			      "(tierctl reserve)",
			      request->keep, job->name, room, PLURAL(room));
	if (job->location.former_shape.world_size > 0)
		return refuse(message, size, -EAGAIN, "job %s gets another shape; try again", job->name);
	return 0;
}

void retain_snapshots(struct pending *pending, const Tierd__Wire__JobRetain *request,
		      struct queue *requesters)
{
	struct job *job = access_find(pending, request->name, request->has_owner, request->owner);
	char message[SNAPSHOT_TEXT];
	struct retain *retain;
	int r = job ? check(job, pending_port(pending), request, message, sizeof(message)) : 0;

	if (!job || !store_task_check(pending, r, message))
		return;
	retain = store_task_new(sizeof(*retain), pending, job, requesters);
	if (!retain)
		return;
	retain->every = request->every;
	retain->keep = request->keep ? request->keep : job->options.snapshots;
	retain->task.begin = say;
	retain->task.done = on_said;
	store_task_send(&retain->task);
}
