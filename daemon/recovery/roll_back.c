/* The job is closed to new ranks at once; those that are there leave. When nothing of it is in flight its
 * store takes the snapshot for its last commit, in one commit. From then on what the daemon knows of the job
 * is void: it is opened again, as after a start. A daemon that dies in between finds the one state or the
 * other. */

#include <errno.h>
#include <stdio.h>

#include "daemon/durability/durability.h"
#include "daemon/life/life.h"
#include "daemon/model/model.h"
#include "daemon/recovery/recovery.h"
#include "daemon/request/request.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/update.h"
#include "daemon/values/values.h"

struct roll_back {
	struct store_task task;
	struct restore_notice notice;
	struct store_snapshot snapshot;
	char doubt[SNAPSHOT_TEXT]; /* "", or why nobody knows whether it was done */
	bool is_deletion;	   /* of that snapshot, which is lost */
};

/* ---- It is back ---- */

static void answer_doubt(struct roll_back *roll_back, const struct job *job, const char *why)
{
	if (job)
		store_task_error(&roll_back->task, -EIO, "%s; it was opened again, and stands at step %llu",
				 roll_back->doubt, (unsigned long long)job->step);
	else
		store_task_error(&roll_back->task, -EIO, "%s; it cannot be opened again: %s",
				 roll_back->doubt, why);
}

static void reply_rolled_back(struct roll_back *roll_back, uint64_t step)
{
	Tierd__Wire__JobRollBackReply body = TIERD__WIRE__JOB_ROLL_BACK_REPLY__INIT;

	body.step = step;
	store_task_reply(&roll_back->task, WIRE_REPLY(JOB_ROLL_BACK, job_roll_back, &body));
}

static void on_back(struct restore_notice *notice, const struct job *job, const char *why)
{
	struct roll_back *roll_back = container_of(notice, struct roll_back, notice);

	if (roll_back->doubt[0])
		answer_doubt(roll_back, job, why);
	else if (job && roll_back->is_deletion)
		store_task_reply(&roll_back->task, NULL);
	else if (job)
		reply_rolled_back(roll_back, job->step);
	else if (roll_back->is_deletion)
		store_task_error(&roll_back->task, -EIO,
				 "snapshot %s was deleted, and the job cannot be opened: %s",
				 roll_back->snapshot.name, why);
	else
		store_task_error(&roll_back->task, -EIO,
				 "the job was rolled back to step %llu, and cannot be opened there: %s",
				 (unsigned long long)roll_back->snapshot.step, why);
	store_task_free(&roll_back->task);
}

/* ---- In the store ---- */

static int begin(struct store_task *task, struct store *store)
{
	const struct roll_back *roll_back = container_of(task, struct roll_back, task);

	/* What they look at will not be there any more. */
	values_end(task->job);
	warm_hold(task->job, true);
	if (roll_back->is_deletion)
		return store_delete_lost(store, roll_back->snapshot.name, &task->request);
	return store_roll_back(store, roll_back->snapshot.name, &task->request);
}

/* What is in memory may not be what is on the devices. */
static void open_again(struct roll_back *roll_back)
{
	struct job *job = roll_back->task.job;

	restore_await(job, &roll_back->notice);
	life_step(job, LIFE_REOPEN);
	drop_others(job);
}

/* A commit that has failed is there or not, and its store is not written any more. */
static bool is_in_doubt(const struct job *job, int status)
{
	return status != -ENOENT && status != -ESHUTDOWN && !job_is_ending(job);
}

static void doubt(struct roll_back *roll_back, int status)
{
	struct job *job = roll_back->task.job;
	char why[SNAPSHOT_TEXT / 2];

	snapshot_explain(job, roll_back->snapshot.name, status, why, sizeof(why));
	snprintf(roll_back->doubt, sizeof(roll_back->doubt), "%s snapshot %s has failed: %s",
		 roll_back->is_deletion ? "giving up" : "rolling back to", roll_back->snapshot.name, why);
	events_of_job(job, EVENT_SNAPSHOT_FAILED, &(struct log_fields){ .step = &roll_back->snapshot.step },
		      "%s; it is opened again, as it is on its devices", roll_back->doubt);
	open_again(roll_back);
}

static void tell_done(const struct roll_back *roll_back, const struct job *job)
{
	if (roll_back->is_deletion)
		events_of_job(job, EVENT_SNAPSHOT_DELETED, NULL,
			      "user %u has given up snapshot %s, which was lost",
			      (unsigned)roll_back->task.requester.uid, roll_back->snapshot.name);
	else
		events_of_job(job, EVENT_ROLLED_BACK,
			      &(struct log_fields){ .step = &roll_back->snapshot.step },
			      "user %u has rolled it back from step %llu to snapshot %s, of step %llu",
			      (unsigned)roll_back->task.requester.uid, (unsigned long long)job->step,
			      roll_back->snapshot.name, (unsigned long long)roll_back->snapshot.step);
}

static void on_rolled_back(struct store_task *task, int status)
{
	struct roll_back *roll_back = container_of(task, struct roll_back, task);
	struct job *job = task->job;

	/* Somebody has dropped it meanwhile. */
	if (status == 0 && job->state == JOB_DROPPED)
		status = -ESHUTDOWN;
	if (status < 0 && is_in_doubt(job, status)) {
		doubt(roll_back, status);
	} else if (status < 0) {
		warm_hold(job, false);
		snapshot_fail(task, roll_back->snapshot.name, status);
		store_task_free(task);
	} else {
		tell_done(roll_back, job);
		open_again(roll_back);
	}
}

/* ---- The request ---- */

static void start(struct pending *pending, struct job *job, const struct store_snapshot *snapshot,
		  bool is_deletion, struct queue *requesters)
{
	struct roll_back *roll_back = store_task_new(sizeof(*roll_back), pending, job, requesters);
	char reason[160];

	if (!roll_back)
		return;
	roll_back->snapshot = *snapshot;
	roll_back->is_deletion = is_deletion;
	roll_back->notice.done = on_back;
	roll_back->task.is_last = true;
	roll_back->task.begin = begin;
	roll_back->task.done = on_rolled_back;
	/* Nobody is there while a snapshot is lost. */
	snprintf(reason, sizeof(reason), "job %s was rolled back to step %llu by user %u", job->name,
		 (unsigned long long)snapshot->step, (unsigned)roll_back->task.requester.uid);
	store_task_send(&roll_back->task);
	drop_ranks(job, reason);
}

void roll_back_job(struct pending *pending, const Tierd__Wire__JobRollBack *request, struct queue *requesters)
{
	const struct port *port = pending_port(pending);
	struct job *job = access_find(pending, request->name, request->has_owner, request->owner);
	struct store_snapshot snapshot;
	char message[SNAPSHOT_TEXT], ranks[256];
	int r;

	if (!job)
		return;
	if (!access_may_drop(job, port)) {
		pending_error(pending, -EPERM, "job %s is for its owner to roll back, user %u", job->name,
			      (unsigned)job->uid);
		return;
	}
	r = snapshot_check_change(job, message, sizeof(message));
	if (r == 0)
		r = snapshot_find(job, request->snapshot, &snapshot, message, sizeof(message));
	if (!store_task_check(pending, r, message))
		return;
	members_describe(job, ranks, sizeof(ranks));
	if (ranks[0] && !request->force)
		pending_error(
			pending, -EBUSY,
			"job %s is in use by %s; end them, or roll it back with --force, which destroys "
			"all steps after the snapshot",
			job->name, ranks);
	else
		start(pending, job, &snapshot, false, requesters);
}

void roll_back_delete_lost(struct pending *pending, const Tierd__Wire__SnapshotDelete *request,
			   struct queue *requesters)
{
	struct job *job = access_find(pending, request->name, request->has_owner, request->owner);
	struct store_snapshot snapshot;
	char message[SNAPSHOT_TEXT];
	int r;

	if (!job)
		return;
	if (!access_may_drop(job, pending_port(pending))) {
		pending_error(pending, -EPERM, "snapshots of job %s are for its owner to delete, user %u",
			      job->name, (unsigned)job->uid);
		return;
	}
	r = snapshot_find(job, request->snapshot, &snapshot, message, sizeof(message));
	if (r == 0 && !snapshot.is_lost)
		r = refuse(message, sizeof(message), -EINVAL,
			   "snapshot %s of job %s can be read: --lost is for those that cannot be",
			   snapshot.name, job->name);
	if (store_task_check(pending, r, message))
		start(pending, job, &snapshot, true, requesters);
}
