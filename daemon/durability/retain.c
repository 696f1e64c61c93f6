/* The job's definition says it from the next commit on, which is due at once: also of a job that nobody
 * trains, whose host memory may be released. */

#include <errno.h>
#include <stdlib.h>

#include "common/plural.h"
#include "daemon/durability/durable.h"
#include "daemon/durability/store_task.h"
#include "daemon/durability/retain.h"
#include "daemon/durability/retention.h"
#include "daemon/durability/snapshot.h"
#include "daemon/durability/own.h"
#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "daemon/telemetry/telemetry.h"

struct retain {
	struct store_task task;
	struct requester requester;
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

static void reply_retained(const struct retain *retain)
{
	Tierd__Wire__Reply reply = TIERD__WIRE__REPLY__INIT;
	Tierd__Wire__JobRetainReply body = TIERD__WIRE__JOB_RETAIN_REPLY__INIT;

	if (retain->every == 0)
		events_of_job(retain->task.job, EVENT_RETAINED, NULL, "user %u has it keep no step by itself",
			      (unsigned)retain->requester.uid);
	else
		events_of_job(retain->task.job, EVENT_RETAINED, NULL,
			      "user %u has it keep each step that %llu divides by itself, and the last %u of "
			      "those",
			      (unsigned)retain->requester.uid, (unsigned long long)retain->every,
			      retain->keep);
	if (!retain->requester.pending)
		return;
	body.every = retain->every;
	body.keep = retain->keep;
	reply.body_case = TIERD__WIRE__REPLY__BODY_JOB_RETAIN;
	reply.job_retain = &body;
	pending_reply(retain->requester.pending, &reply);
}

static void on_done(struct store_task *task, int status)
{
	struct retain *retain = container_of(task, struct retain, task);

	if (status == -EINPROGRESS) {
		store_task_send(task);
		return;
	}
	if (status == -EALREADY)
		reply_retained(retain);
	else if (retain->requester.pending)
		snapshot_fail(retain->requester.pending, task->job, "", status);
	requester_end(&retain->requester);
	free(retain);
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
	r = snapshot_check_job(job, message, size);
	if (r == 0)
		r = snapshot_check_lost(job, message, size);
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

	if (r < 0)
		pending_error(pending, r, "%s", message);
	if (!job || r < 0)
		return;
	retain = calloc(1, sizeof(*retain));
	if (!retain) {
		pending_error(pending, -ENOMEM, "job %s: out of memory", job->name);
		return;
	}
	retain->every = request->every;
	retain->keep = request->keep ? request->keep : job->options.snapshots;
	retain->task.job = job;
	retain->task.begin = say;
	retain->task.done = on_done;
	requester_begin(&retain->requester, pending, requesters);
	store_task_send(&retain->task);
}
