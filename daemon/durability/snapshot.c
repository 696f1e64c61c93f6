#include "daemon/durability/snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/plural.h"
#include "daemon/durability/durable.h"
#include "daemon/durability/store_task.h"
#include "daemon/durability/family.h"
#include "daemon/durability/pinned_step.h"
#include "daemon/durability/own.h"
#include "daemon/durability/presence.h"
#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "daemon/telemetry/telemetry.h"
#include "proto/name.h"

/* A client's, until the store has done it. */
struct snapshot_request {
	struct store_task task;
	char name[WIRE_MAX_SNAPSHOT_NAME + 1], to[WIRE_MAX_SNAPSHOT_NAME + 1];
	uint64_t step, changed_bytes;
	/* It has been done. */
	void (*tell)(struct snapshot_request *request);
};

/* ---- What is there ---- */

/* As many as there is room for. */
static void name_snapshots(const struct job *job, char *text, size_t size)
{
	struct store_snapshot snapshots[STORE_MAX_SNAPSHOTS];
	unsigned count = store_snapshots(job_nvme_store(job), snapshots);
	size_t used = 0;

	snprintf(text, size, "none");
	for (unsigned i = 0; i < count && used + sizeof(snapshots[i].name) + 2 < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "",
					 snapshots[i].name);
}

bool snapshot_look_for(const struct job *job, const char *name, struct store_snapshot *ret_snapshot)
{
	struct store_snapshot snapshots[STORE_MAX_SNAPSHOTS];
	unsigned count = store_snapshots(job_nvme_store(job), snapshots);

	for (unsigned i = 0; i < count; i++)
		if (strcmp(snapshots[i].name, name) == 0) {
			*ret_snapshot = snapshots[i];
			return true;
		}
	return false;
}

unsigned snapshot_count(const struct job *job)
{
	struct store_snapshot snapshots[STORE_MAX_SNAPSHOTS];

	return job->durability->durable ? store_snapshots(job_nvme_store(job), snapshots) : 0;
}

static bool find_lost(const struct job *job, struct store_snapshot *ret_snapshot, unsigned *ret_count)
{
	struct store_snapshot snapshots[STORE_MAX_SNAPSHOTS];
	unsigned count = job->durability->durable ? store_snapshots(job_nvme_store(job), snapshots) : 0;

	*ret_count = 0;
	for (unsigned i = 0; i < count; i++)
		if (snapshots[i].is_lost && (*ret_count)++ == 0)
			*ret_snapshot = snapshots[i];
	return *ret_count > 0;
}

unsigned snapshot_count_lost(const struct job *job)
{
	struct store_snapshot snapshot;
	unsigned count;

	(void)find_lost(job, &snapshot, &count);
	return count;
}

int snapshot_check_lost(const struct job *job, char *message, size_t size)
{
	struct store_snapshot snapshot;
	unsigned count;

	if (!find_lost(job, &snapshot, &count))
		return family_check_lost(job, message, size);
	return refuse(
		message, size, -EIO,
		"job %s can only be read as long as its snapshot %s is there, whose map cannot be read: "
		"nobody knows which places on the disk it has; bring back the disk as it was and start "
		"tierd again, or give the snapshot up (tierctl snapshot %s %s --delete --lost destroys "
		"it)",
		job->name, snapshot.name, job->name, snapshot.name);
}

int snapshot_find(const struct job *job, const char *name, struct store_snapshot *ret_snapshot, char *message,
		  size_t size)
{
	int r = snapshot_check_job(job, message, size);

	if (r < 0 || snapshot_look_for(job, name, ret_snapshot))
		return r;
	snapshot_explain(job, name, -ENOENT, message, size);
	return -ENOENT;
}

/* ---- Refusals ---- */

int snapshot_check_job(const struct job *job, char *message, size_t size)
{
	if (job_is_broken(job))
		return refuse(message, size, -EIO, "job %s is broken: %s", job->name, job->epoch.reason);
	if (!job_has_state(job))
		return refuse(message, size, -EBUSY,
			      "job %s has no values yet: snapshots begin when all its ranks were ready",
			      job->name);
	if (!job->durability->durable)
		return refuse(
			message, size, -EOPNOTSUPP,
			job->location.durability == DURABILITY_NONE
				? "job %s is not durable, and so it has no snapshots: it was opened so; "
				  "open another job that is, with this one as its source"
				: "job %s is not durable, and so it has no snapshots: tierd has no "
				  "NVMe path; configure one",
			job->name);
	if (job_is_rolling_back(job))
		return refuse(message, size, -EAGAIN, "job %s is being rolled back; try again", job->name);
	if (!store_tasks_have_room(job))
		return refuse(message, size, -EBUSY,
			      "%d requests for snapshots of job %s wait for their turn, and tierd takes no "
			      "more; ask again when some of them are done",
			      STORE_TASKS_MAXIMUM, job->name);
	return 0;
}

/* What would give room back, beside making more. */
static void suggest_space(const struct job *job, char *text, size_t size)
{
	const struct pinned_step *pinned[PINNED_STEPS_LISTED_MOST];
	unsigned readers = pinned_steps_list(job, pinned);
	char names[400];
	size_t used = 0;

	text[0] = '\0';
	if (snapshot_count(job) > 0) {
		name_snapshots(job, names, sizeof(names));
		used = (size_t)snprintf(text, size,
					"delete one of %s (tierctl snapshot --delete destroys it), ", names);
	}
	if (readers > 0 && used < size)
		snprintf(text + used, size - used,
			 "wait for the end of %u reader%s for which a step is kept (tierctl snapshots), ",
			 readers, PLURAL(readers));
}

static void explain_space(const struct job *job, char *message, size_t size)
{
	char advice[560];

	if (job->options.snapshots == 0) {
		snprintf(message, size, "job %s has no room for snapshots; make some (tierctl reserve)",
			 job->name);
		return;
	}
	suggest_space(job, advice, sizeof(advice));
	snprintf(message, size,
		 "the room of job %s for %u snapshot%s is used: %s; %sor make room for more (tierctl "
		 "reserve)",
		 job->name, job->options.snapshots, PLURAL(job->options.snapshots),
		 store_message(job_nvme_store(job)), advice);
}

static void explain_name(const struct job *job, const char *name, int status, char *message, size_t size)
{
	struct store_snapshot snapshot;
	char names[640];

	if (status == -EEXIST && snapshot_look_for(job, name, &snapshot)) {
		snprintf(message, size,
			 "job %s has a snapshot %s already, of step %llu; take another name, or delete that "
			 "one first, which destroys it",
			 job->name, name, (unsigned long long)snapshot.step);
		return;
	}
	name_snapshots(job, names, sizeof(names));
	snprintf(message, size, "job %s has no snapshot %.*s; it has %s", job->name, name_fit(name, 80), name,
		 names);
}

static void explain_table(const struct job *job, char *message, size_t size)
{
	char others[FAMILY_TEXT];
	struct store_family family;

	family_get(job, &family);
	if (family.jobs < 2)
		snprintf(message, size,
			 "job %s has %d snapshots, which is the most that a store has room for; delete one, "
			 "which destroys it",
			 job->name, STORE_MAX_SNAPSHOTS);
	else
		snprintf(message, size,
			 "the store of job %s has %d jobs and snapshots, which is the most that a store has "
			 "room "
			 "for: delete a snapshot, or drop a job, which destroys its state; others in it are "
			 "%.500s",
			 job->name, STORE_MAX_SNAPSHOTS + 1, family_name_others(job, others, sizeof(others)));
}

void snapshot_explain(const struct job *job, const char *name, int status, char *message, size_t size)
{
	if (status == -ENOSPC)
		explain_space(job, message, size);
	else if (status == -EEXIST || status == -ENOENT)
		explain_name(job, name, status, message, size);
	else if (status == -EMFILE)
		explain_table(job, message, size);
	else if (status == -ESHUTDOWN)
		snprintf(message, size, "job %s has ended before that was done%s%s", job->name,
			 job->epoch.reason[0] ? ": " : "", job->epoch.reason);
	else
		snprintf(message, size, "job %s: %s", job->name,
			 store_message(job_nvme_store(job))[0] ? store_message(job_nvme_store(job))
							       : strerror(-status));
}

/* Of the codes that have none of their own. */
static int code_of(int status)
{
	return status == -EMFILE ? -ENOSPC : status == -ESHUTDOWN ? -ECANCELED : status;
}

void snapshot_fail(struct store_task *task, const char *name, int status)
{
	char message[SNAPSHOT_TEXT];

	snapshot_explain(task->job, name, status, message, sizeof(message));
	store_task_error(task, code_of(status), "%s", message);
}

/* ---- Requests ---- */

static void on_done(struct store_task *task, int status)
{
	struct snapshot_request *request = container_of(task, struct snapshot_request, task);

	if (status == 0)
		request->tell(request);
	else
		snapshot_fail(task, request->name, status);
	store_task_free(task);
}

static bool check_name(struct pending *pending, const char *name)
{
	if (name_is_word(name, WIRE_MAX_SNAPSHOT_NAME))
		return true;
	pending_error(pending, -EINVAL, "snapshot name \"%.*s\" is not allowed: 1 to %d of " NAME_RULE,
		      name_fit(name, 80), name, WIRE_MAX_SNAPSHOT_NAME);
	return false;
}

int snapshot_check_change(const struct job *job, char *message, size_t size)
{
	int r = snapshot_check_job(job, message, size);

	return r < 0 ? r : snapshot_check_lost(job, message, size);
}

int snapshot_check_take(const struct job *job, const struct port *port, char *message, size_t size)
{
	if (!access_may_train(job, port) && !access_may_drop(job, port))
		return refuse(message, size, -EPERM,
			      "snapshots of job %s are for those to take who may train it: its owner, user "
			      "%u, and whom he shares it with for that",
			      job->name, (unsigned)job->uid);
	return snapshot_check_change(job, message, size);
}

static bool check_take(struct pending *pending, const struct job *job)
{
	char message[SNAPSHOT_TEXT];
	int r = snapshot_check_take(job, pending_port(pending), message, sizeof(message));

	if (r == 0)
		r = presence_refuse(job, message, sizeof(message));
	return store_task_check(pending, r, message);
}

/* NULL, and it is answered: there is no memory for it. */
static struct snapshot_request *request_new(struct pending *pending, struct job *job, const char *name,
					    struct queue *requesters)
{
	struct snapshot_request *request = store_task_new(sizeof(*request), pending, job, requesters);

	if (!request)
		return NULL;
	snprintf(request->name, sizeof(request->name), "%s", name);
	request->task.done = on_done;
	return request;
}

/* ---- Take ---- */

static int begin_take(struct store_task *task, struct store *store)
{
	struct snapshot_request *request = container_of(task, struct snapshot_request, task);

	request->step = store_step(store);
	return store_snapshot(store, request->name, &task->request);
}

static void tell_taken(struct snapshot_request *request)
{
	Tierd__Wire__SnapshotTakeReply body = TIERD__WIRE__SNAPSHOT_TAKE_REPLY__INIT;

	events_of_job(request->task.job, EVENT_SNAPSHOT_TAKEN, &(struct log_fields){ .step = &request->step },
		      "step %llu is kept as snapshot %s", (unsigned long long)request->step, request->name);
	body.step = request->step;
	store_task_reply(&request->task, WIRE_REPLY(SNAPSHOT_TAKE, snapshot_take, &body));
}

void snapshot_take(struct pending *pending, const struct member *member,
		   const Tierd__Wire__SnapshotTake *take, struct queue *requesters)
{
	struct job *job =
		member ? member->job : access_find(pending, take->name, take->has_owner, take->owner);
	struct snapshot_request *request;

	if (!job || !check_name(pending, take->snapshot) || !check_take(pending, job))
		return;
	request = request_new(pending, job, take->snapshot, requesters);
	if (!request)
		return;
	request->tell = tell_taken;
	request->task.step = job->step;
	request->task.begin = begin_take;
	store_task_send(&request->task);
}

/* ---- Delete ---- */

static int begin_delete(struct store_task *task, struct store *store)
{
	const struct snapshot_request *request = container_of(task, struct snapshot_request, task);

	return store_delete_snapshot(store, request->name, &task->request);
}

static void tell_deleted(struct snapshot_request *request)
{
	events_of_job(request->task.job, EVENT_SNAPSHOT_DELETED, NULL, "user %u has deleted snapshot %s",
		      (unsigned)request->task.requester.uid, request->name);
	store_task_reply(&request->task, NULL);
}

void snapshot_delete(struct pending *pending, const Tierd__Wire__SnapshotDelete *delete,
		     struct queue *requesters)
{
	struct job *job = access_find(pending, delete->name, delete->has_owner, delete->owner);
	struct snapshot_request *request;
	char message[SNAPSHOT_TEXT];

	if (!job || !check_name(pending, delete->snapshot))
		return;
	if (!access_may_drop(job, pending_port(pending))) {
		pending_error(pending, -EPERM, "snapshots of job %s are for its owner to delete, user %u",
			      job->name, (unsigned)job->uid);
		return;
	}
	if (!store_task_check(pending, snapshot_check_change(job, message, sizeof(message)), message))
		return;
	request = request_new(pending, job, delete->snapshot, requesters);
	if (!request)
		return;
	request->tell = tell_deleted;
	request->task.begin = begin_delete;
	store_task_send(&request->task);
}

/* ---- Diff ---- */

static int begin_diff(struct store_task *task, struct store *store)
{
	struct snapshot_request *request = container_of(task, struct snapshot_request, task);

	/* Nothing comes of it but an answer. */
	if (!task->requester.pending)
		return -ECANCELED;
	return store_diff(store, request->name, request->to[0] ? request->to : NULL, &task->request,
			  &request->changed_bytes);
}

static void tell_diff(struct snapshot_request *request)
{
	Tierd__Wire__SnapshotDiffReply body = TIERD__WIRE__SNAPSHOT_DIFF_REPLY__INIT;

	body.changed_bytes = request->changed_bytes;
	body.state_bytes = store_state_bytes(job_nvme_store(request->task.job));
	store_task_reply(&request->task, WIRE_REPLY(SNAPSHOT_DIFF, snapshot_diff, &body));
}

void snapshot_diff(struct pending *pending, const Tierd__Wire__SnapshotDiff *diff, struct queue *requesters)
{
	struct job *job = access_find(pending, diff->name, diff->has_owner, diff->owner);
	const char *names[] = { diff->from, diff->to };
	struct snapshot_request *request;
	struct store_snapshot snapshot;
	char message[SNAPSHOT_TEXT];
	int r = 0;

	for (size_t i = 0; i < ARRAY_LENGTH(names) && job && r == 0; i++)
		if (i == 0 || names[i][0])
			r = snapshot_find(job, names[i], &snapshot, message, sizeof(message));
	if (!job || !store_task_check(pending, r, message))
		return;
	request = request_new(pending, job, diff->from, requesters);
	if (!request)
		return;
	snprintf(request->to, sizeof(request->to), "%s", diff->to);
	request->tell = tell_diff;
	request->task.begin = begin_diff;
	store_task_send(&request->task);
}
