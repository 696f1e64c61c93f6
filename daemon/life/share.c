/* What is taken from somebody is taken at once, whatever becomes of the commit that keeps it. */

#include <errno.h>
#include <stdio.h>

#include "common/plural.h"
#include "daemon/durability/durability.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/life.h"
#include "daemon/life/share.h"
#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "daemon/scrub/scrub.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/values/values.h"

struct share {
	struct store_task task;
	Tierd__Wire__JobShareReply body;
	bool is_said; /* in the definition, whose commit is awaited */
};

/* ---- What was said before ---- */

void share_overlook(const struct job *job, struct job_options *asked)
{
	if (!job->options.is_sharing_set)
		return;
	asked->sharing = job->options.sharing;
	asked->share_group = job->options.share_group;
}

struct sharing share_of(const struct job *job)
{
	return (struct sharing){ .is_known = !job_is_lost(job),
				 .is_set = job->options.is_sharing_set,
				 .sharing = job->options.sharing,
				 .group = job->options.share_group };
}

void share_restore(struct job *job, const struct sharing *sharing)
{
	if (!sharing->is_known ||
	    (job->options.sharing == sharing->sharing && job->options.share_group == sharing->group &&
	     job->options.is_sharing_set == sharing->is_set))
		return;
	job->options.sharing = sharing->sharing;
	job->options.share_group = sharing->group;
	job->options.is_sharing_set = sharing->is_set;
	/* Without memory it says so when it changes next. */
	if (durable_redefine_now(job) == 0)
		job_settle(job);
}

/* ---- Who loses it ---- */

static void describe(const struct job *job, char *text, size_t size)
{
	if (job->options.sharing == SHARING_NONE)
		snprintf(text, size, "with nobody");
	else
		snprintf(text, size, "with group %u, to %s", (unsigned)job->options.share_group,
			 job->options.sharing == SHARING_READ ? "read" : "train");
}

static unsigned end_ranks(struct job *job, const char *reason)
{
	unsigned count = 0;

	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		struct member *member = job->members.ranks[rank];

		if (!member || access_may_train(job, member->port))
			continue;
		job_leave(member, false, reason);
		count++;
	}
	return count;
}

static void end_sessions(struct job *job, uid_t uid, Tierd__Wire__JobShareReply *body)
{
	char with[64], reason[160], lost[64] = "";

	describe(job, with, sizeof(with));
	snprintf(reason, sizeof(reason), "user %u has shared job %s %s", (unsigned)uid, job->name, with);
	body->readers = values_end_denied(job, reason);
	verifies_end_denied(job, reason);
	tracers_end_denied(job, reason);
	body->ranks = end_ranks(job, reason);
	if (body->ranks + body->readers > 0)
		snprintf(lost, sizeof(lost), "; %u rank%s and %u reader%s have lost it", body->ranks,
			 PLURAL(body->ranks), body->readers, PLURAL(body->readers));
	events_of_job(job, EVENT_SHARED, NULL, "user %u has shared it %s%s", (unsigned)uid, with, lost);
}

/* ---- In its record ---- */

/* No commit is on its way: the definition may be changed. The task ends, and comes again for the commit. */
static int say(struct store_task *task, struct store *store)
{
	struct share *share = container_of(task, struct share, task);
	int r;

	if (share->is_said)
		return -EALREADY;
	r = durable_redefine_now(task->job);
	if (r < 0)
		return r;
	share->is_said = task->awaits_definition = true;
	return -EINPROGRESS;
}

static void fail(struct share *share, int status)
{
	const struct job *job = share->task.job;
	char why[SNAPSHOT_TEXT], with[64];

	describe(job, with, sizeof(with));
	snapshot_explain(job, "", status, why, sizeof(why));
	store_task_error(&share->task, status == -ESHUTDOWN ? -ECANCELED : status,
			 "job %s is shared %s as long as this tierd runs, and its record does not say so: %s",
			 job->name, with, why);
}

static void on_done(struct store_task *task, int status)
{
	struct share *share = container_of(task, struct share, task);

	if (status == -EINPROGRESS) {
		store_task_send(task);
		return;
	}
	if (status == -EALREADY)
		store_task_reply(task, WIRE_REPLY(JOB_SHARE, job_share, &share->body));
	else
		fail(share, status);
	store_task_free(task);
}

/* ---- The request ---- */

static int check(const struct job *job, const struct port *port, const Tierd__Wire__JobShare *request,
		 char *message, size_t size)
{
	if (!access_may_drop(job, port))
		return refuse(message, size, -EPERM,
			      "whom job %s is shared with is for its owner to say, user %u", job->name,
			      (unsigned)job->uid);
	if (request->sharing > SHARING_TRAIN)
		return refuse(message, size, -EINVAL, "job %s: no sharing %u", job->name, request->sharing);
	if (request->sharing != SHARING_NONE && !request->has_group && job->options.sharing == SHARING_NONE)
		return refuse(message, size, -EINVAL, "job %s is shared with nobody: say with which group",
			      job->name);
	if (job_is_lost(job))
		return refuse(message, size, -EIO, "the store of job %s cannot be opened: %s", job->name,
			      job->epoch.reason);
	if (job_is_rolling_back(job) || job->location.former_shape.world_size > 0)
		return refuse(message, size, -EAGAIN, "job %s %s; try again", job->name,
			      job_is_rolling_back(job) ? "is being rolled back" : "gets another shape");
	return 0;
}

static void set(struct job *job, const Tierd__Wire__JobShare *request)
{
	uint32_t group = request->has_group ? request->group : job->options.share_group;

	job->options.sharing = request->sharing;
	job->options.share_group = request->sharing == SHARING_NONE ? 0 : group;
	job->options.is_sharing_set = true;
}

/* Before the first commit nothing says anything else: it will be the first that does. */
static bool has_record(const struct job *job)
{
	return durable_has_store(job) && job_has_state(job) && !job_is_ending(job);
}

void share_job(struct pending *pending, const Tierd__Wire__JobShare *request, struct queue *requesters)
{
	struct job *job = access_find(pending, request->name, request->has_owner, request->owner);
	char message[SNAPSHOT_TEXT];
	struct share *share;
	int r = job ? check(job, pending_port(pending), request, message, sizeof(message)) : 0;

	if (!job || !store_task_check(pending, r, message))
		return;
	share = store_task_new(sizeof(*share), pending, job, requesters);
	if (!share)
		return;
	tierd__wire__job_share_reply__init(&share->body);
	set(job, request);
	share->body.sharing = job->options.sharing;
	share->body.group = job->options.share_group;
	end_sessions(job, share->task.requester.uid, &share->body);
	r = has_record(job) ? 0 : durable_redefine(job);
	share->task.begin = say;
	share->task.done = on_done;
	if (has_record(job) && !job_is_broken(job))
		store_task_send(&share->task);
	else
		on_done(&share->task, job_is_broken(job) ? -EIO : r < 0 ? r : -EALREADY);
}
