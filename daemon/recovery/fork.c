/* The store adds the fork in one commit, in which nothing but its table is written; its devices grow for what
 * the fork may change. From then on the fork is as a job that an earlier daemon has left: it comes back from
 * its store, in which its record says its origin's name until its own first commit, which is due at once. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/durability/durability.h"
#include "daemon/life/life.h"
#include "daemon/model/model.h"
#include "daemon/recovery/own.h"
#include "daemon/recovery/recovery.h"
#include "daemon/request/request.h"
#include "daemon/resources/resources.h"
#include "daemon/telemetry/telemetry.h"

struct fork {
	struct store_task task; /* of its origin */
	struct restore_notice notice;
	struct job_file file;
	char origin[WIRE_MAX_JOB_NAME + 1], snapshot[WIRE_MAX_SNAPSHOT_NAME + 1];
	unsigned snapshots; /* that there is to be room for; 0: as many as were asked for before */
	struct restore *restore;
	struct store *store;
	uint64_t more; /* bytes of each path, which the origin has taken for it */
	char message[SNAPSHOT_TEXT];
};

/* ---- Whether it may be ---- */

static int check_new_name(struct node *node, uid_t uid, const char *name, char *message, size_t size)
{
	int r = options_check_name(name, message, size);

	if (r == 0)
		r = job_check_name(node, name, message, size);
	if (r < 0)
		return r;
	if (job_find(node, uid, name) || restore_is_under_way(node, uid, name))
		return refuse(
			message, size, -EEXIST,
			"there is a job %s of user %u already: take another name, or drop that one, which "
			"destroys its state",
			name, (unsigned)uid);
	return 0;
}

static int check_node(struct node *node, uid_t uid, char *message, size_t size)
{
	if (node->is_draining)
		return refuse(message, size, -ESHUTDOWN,
			      "tierd drains: no job can be made until it has been started again, or tierctl "
			      "drain --undo");
	return job_check_count(node, uid, message, size);
}

static int check_origin(const struct job *job, const Tierd__Wire__JobFork *request, char *message,
			size_t size)
{
	struct store_snapshot snapshot;
	int r = snapshot_check_change(job, message, size);

	if (r == 0)
		r = presence_refuse(job, message, size);
	if (r == 0 && request->snapshot[0])
		r = snapshot_find(job, request->snapshot, &snapshot, message, size);
	if (r < 0)
		return r;
	if (request->snapshots > WIRE_MAX_SNAPSHOTS)
		return refuse(message, size, -EINVAL, "room for %u snapshots; at most %d are possible",
			      request->snapshots, WIRE_MAX_SNAPSHOTS);
	return 0;
}

static int check(const struct job *job, const struct port *port, const Tierd__Wire__JobFork *request,
		 char *message, size_t size)
{
	int r;

	if (!access_may_drop(job, port))
		return refuse(
			message, size, -EPERM,
			"job %s is for its owner to fork, user %u; a copy of it is a job of your own that "
			"is opened with the option source",
			job->name, (unsigned)job->uid);
	r = check_node(job->node, job->uid, message, size);
	if (r == 0)
		r = check_new_name(job->node, job->uid, request->fork, message, size);
	if (r == 0)
		r = check_origin(job, request, message, size);
	return r == 0 && request->snapshots > family_asked_snapshots(job)
		       ? reserve_check_limit(job, port, request->snapshots, message, size)
		       : r;
}

/* ---- In the store ---- */

/* Not as many as there is room for: that may be what a fork has left that is gone, and is this one's then. */
static unsigned snapshots_for(const struct fork *fork)
{
	unsigned asked = family_asked_snapshots(fork->task.job);

	return fork->snapshots > asked ? fork->snapshots : asked;
}

static int take_room(struct fork *fork, const struct store *store)
{
	struct job *job = fork->task.job;
	struct store_family family;
	char reason[640];
	int r;

	store_get_family(store, &family);
	fork->more = store_space_for_fork(store, snapshots_for(fork)).device_bytes - family.device_bytes;
	r = budget_lend(job, fork->more, reason, sizeof(reason));
	if (r < 0)
		fork->more = 0;
	return r < 0 ? refuse(fork->message, sizeof(fork->message), r, "job %s cannot be forked: %s",
			      job->name, reason)
		     : 0;
}

static int begin(struct store_task *task, struct store *store)
{
	struct fork *fork = container_of(task, struct fork, task);
	struct job *job = task->job;
	struct store_fork request = { .snapshot = fork->snapshot[0] ? fork->snapshot : NULL,
				      .name = fork->file.name,
				      .snapshots = snapshots_for(fork) };
	/* While it waited for its turn somebody else may have made one of that name. */
	int r = check_new_name(job->node, job->uid, fork->file.name, fork->message, sizeof(fork->message));

	if (r == 0)
		r = check_node(job->node, job->uid, fork->message, sizeof(fork->message));
	if (r == 0)
		r = take_room(fork, store);
	if (r < 0)
		return r;
	request.serial = fork->file.number = ++job->node->jobs.created;
	memcpy(fork->file.file, job->location.file, sizeof(fork->file.file));
	fork->restore = restore_begin_fork(job, &fork->file, &fork->notice);
	if (!fork->restore)
		return -ENOMEM;
	return store_fork(store, &request, &task->request, &fork->store);
}

static void explain_space(struct fork *fork)
{
	char who[WIRE_MAX_JOB_NAME + 64];

	snprintf(who, sizeof(who), "what a fork of job %s may change", fork->origin);
	budget_explain_disk(fork->task.job, who, fork->more, fork->message, sizeof(fork->message));
}

static void fail(struct fork *fork, int status)
{
	struct job *job = fork->task.job;

	if (status == -ENOSPC && !fork->message[0])
		explain_space(fork);
	else if (status == -EEXIST && !fork->message[0])
		snprintf(
			fork->message, sizeof(fork->message),
			"the store of job %s has a job %s still, which is on its way out: try again, or take "
			"another name",
			fork->origin, fork->file.name);
	budget_take_back(job, fork->more);
	if (fork->restore)
		restore_free(fork->restore);
	if (fork->message[0])
		store_task_error(&fork->task, status, "%s", fork->message);
	else
		snapshot_fail(&fork->task, fork->snapshot, status);
	store_task_free(&fork->task);
}

static void on_forked(struct store_task *task, int status)
{
	struct fork *fork = container_of(task, struct fork, task);

	if (status < 0) {
		fail(fork, status);
		return;
	}
	/* The fork takes it as soon as it is read. */
	budget_take_back(task->job, fork->more);
	restore_end_fork(fork->restore, fork->store);
}

/* ---- It is there ---- */

static void reply(struct fork *fork, const struct job *job)
{
	Tierd__Wire__JobForkReply body = TIERD__WIRE__JOB_FORK_REPLY__INIT;

	body.step = job->step;
	body.nvme_bytes = budget_nvme_bytes(job);
	store_task_reply(&fork->task, WIRE_REPLY(JOB_FORK, job_fork, &body));
}

static void on_there(struct restore_notice *notice, const struct job *job, const char *why)
{
	struct fork *fork = container_of(notice, struct fork, notice);

	if (job)
		events_of_job(job, EVENT_FORKED, &(struct log_fields){ .step = &job->step },
			      "user %u has forked it from job %s%s%s, at step %llu",
			      (unsigned)fork->task.requester.uid, fork->origin, fork->snapshot[0] ? "@" : "",
			      fork->snapshot, (unsigned long long)job->step);
	if (job)
		reply(fork, job);
	else
		store_task_error(&fork->task, -EIO, "job %s was made, and cannot be opened: %s",
				 fork->file.name, why);
	store_task_free(&fork->task);
}

/* ---- The request ---- */

void fork_job(struct pending *pending, const Tierd__Wire__JobFork *request, struct queue *requesters)
{
	struct job *job = access_find(pending, request->name, request->has_owner, request->owner);
	char message[SNAPSHOT_TEXT];
	struct fork *fork;
	int r = job ? check(job, pending_port(pending), request, message, sizeof(message)) : 0;

	if (!job || !store_task_check(pending, r, message))
		return;
	fork = store_task_new(sizeof(*fork), pending, job, requesters);
	if (!fork)
		return;
	fork->file.uid = job->uid;
	snprintf(fork->file.name, sizeof(fork->file.name), "%s", request->fork);
	snprintf(fork->origin, sizeof(fork->origin), "%s", job->name);
	snprintf(fork->snapshot, sizeof(fork->snapshot), "%s", request->snapshot);
	fork->snapshots = request->snapshots;
	fork->notice.done = on_there;
	/* What it asks for is what it sees. */
	fork->task.step = request->snapshot[0] ? 0 : job->step;
	fork->task.begin = begin;
	fork->task.done = on_forked;
	store_task_send(&fork->task);
}
