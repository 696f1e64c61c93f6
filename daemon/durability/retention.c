#include "daemon/durability/retention.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "daemon/durability/store_task.h"
#include "daemon/durability/snapshot.h"
#include "daemon/durability/own.h"
#include "daemon/telemetry/telemetry.h"

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
