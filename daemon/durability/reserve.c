/* The store says how much room there is, by what its superblocks say of the devices: so there is one truth,
 * which changes in one commit. What the record says is how much was asked for. */

#include <errno.h>
#include <stdio.h>

#include "common/plural.h"
#include "daemon/durability/durable.h"
#include "daemon/durability/store_task.h"
#include "daemon/durability/family.h"
#include "daemon/durability/reserve.h"
#include "daemon/durability/snapshot.h"
#include "daemon/durability/own.h"
#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "daemon/resources/resources.h"
#include "daemon/telemetry/telemetry.h"

struct reserve {
	struct store_task task;
	unsigned snapshots, former;
	struct store_space more; /* that has been taken from the budgets */
	bool has_more;
	char message[SNAPSHOT_TEXT];
};

/* ---- Budgets ---- */

static struct store_space room_between(const struct store *store, unsigned from, unsigned to)
{
	struct store_space less = store_space_for(store, from), more = store_space_for(store, to);

	return (struct store_space){ more.device_bytes - less.device_bytes,
				     more.host_bytes - less.host_bytes };
}

int reserve_find(struct job *job, const struct store *store, char *message, size_t size)
{
	unsigned snapshots = store_reserved(store);
	struct store_space more;
	int r;

	if (snapshots <= job->options.snapshots)
		return 0;
	more = room_between(store, job->options.snapshots, snapshots);
	/* What it has of the paths is charged as a whole. */
	more.device_bytes = 0;
	r = budget_grow(job, &more, message, size);
	if (r == 0)
		job->options.snapshots = snapshots;
	return r;
}

/* Who keeps as many by themselves as there is room for keeps what the job keeps. */
void reserve_overlook(const struct job *job, struct job_options *asked)
{
	if (asked->snapshots > job->options.snapshots)
		return;
	if (asked->snapshot_keep == asked->snapshots)
		asked->snapshot_keep = job->options.snapshot_keep;
	asked->snapshots = job->options.snapshots;
}

/* ---- In the store ---- */

static int take(struct reserve *reserve, const struct store *store)
{
	struct job *job = reserve->task.job;
	char reason[640];
	int r;

	reserve->former = job->options.snapshots;
	if (reserve->snapshots <= reserve->former)
		return refuse(reserve->message, sizeof(reserve->message), -EINVAL,
			      "job %s has room for %u snapshot%s, and it only grows: ask for more than that; "
			      "what is not used any more goes with the job, or with a copy of it that has "
			      "less (the option source)",
			      job->name, reserve->former, PLURAL(reserve->former));
	reserve->more = room_between(store, reserve->former, reserve->snapshots);
	r = budget_grow(job, &reserve->more, reason, sizeof(reason));
	reserve->has_more = r == 0;
	return r < 0 ? refuse(reserve->message, sizeof(reserve->message), r, "job %s: %s", job->name, reason)
		     : 0;
}

static int begin(struct store_task *task, struct store *store)
{
	struct reserve *reserve = container_of(task, struct reserve, task);
	int r = take(reserve, store);

	return r < 0 ? r : store_reserve(store, reserve->snapshots, &task->request);
}

/* Unless that is said already. */
static void explain(struct reserve *reserve, int status)
{
	const struct job *job = reserve->task.job;
	char who[WIRE_MAX_JOB_NAME + 64];

	if (reserve->message[0])
		return;
	snprintf(who, sizeof(who), "room for %u snapshot%s of job %s", reserve->snapshots,
		 PLURAL(reserve->snapshots), job->name);
	if (status == -ENOSPC)
		budget_explain_disk(job, who, reserve->more.device_bytes, reserve->message,
				    sizeof(reserve->message));
	else
		snapshot_explain(job, "", status, reserve->message, sizeof(reserve->message));
}

static void fail(struct reserve *reserve, int status)
{
	if (reserve->has_more)
		budget_shrink(reserve->task.job, &reserve->more);
	explain(reserve, status);
	store_task_error(&reserve->task, status == -ESHUTDOWN ? -ECANCELED : status, "%s", reserve->message);
}

static void tell(struct reserve *reserve)
{
	Tierd__Wire__JobReserveReply body = TIERD__WIRE__JOB_RESERVE_REPLY__INIT;
	struct job *job = reserve->task.job;

	budget_end_growth(job, &reserve->more);
	job->options.snapshots = job->durability->snapshots_asked = reserve->snapshots;
	/* Without memory it says so when it changes next. */
	if (durable_redefine_now(job) == 0)
		job_settle(job);
	family_charge_again(job->node, job->location.file);
	events_of_job(job, EVENT_RESERVED, NULL, "user %u has made room for %u snapshot%s, from %u",
		      (unsigned)reserve->task.requester.uid, reserve->snapshots, PLURAL(reserve->snapshots),
		      reserve->former);
	body.nvme_bytes = budget_nvme_bytes(job);
	store_task_reply(&reserve->task, WIRE_REPLY(JOB_RESERVE, job_reserve, &body));
}

static void on_done(struct store_task *task, int status)
{
	struct reserve *reserve = container_of(task, struct reserve, task);

	if (status < 0)
		fail(reserve, status);
	else
		tell(reserve);
	store_task_free(task);
}

/* ---- The request ---- */

static int check(const struct job *job, const struct port *port, unsigned snapshots, char *message,
		 size_t size)
{
	if (!access_may_drop(job, port))
		return refuse(message, size, -EPERM,
			      "room for snapshots of job %s is for its owner to make, user %u", job->name,
			      (unsigned)job->uid);
	if (snapshots > WIRE_MAX_SNAPSHOTS)
		return refuse(message, size, -EINVAL,
			      "room for %u snapshots of job %s; at most %d are possible", snapshots,
			      job->name, WIRE_MAX_SNAPSHOTS);
	return snapshot_check_job(job, message, size);
}

int reserve_check_limit(const struct job *job, const struct port *port, unsigned snapshots, char *message,
			size_t size)
{
	struct quota quota = access_quota(job->node, port);

	return job->uid == port->uid ? access_check_snapshots(&quota, snapshots, message, size) : 0;
}

void reserve_snapshots(struct pending *pending, const Tierd__Wire__JobReserve *request,
		       struct queue *requesters)
{
	struct job *job = access_find(pending, request->name, request->has_owner, request->owner);
	char message[SNAPSHOT_TEXT];
	struct reserve *reserve;
	int r = job ? check(job, pending_port(pending), request->snapshots, message, sizeof(message)) : 0;

	if (job && r == 0)
		r = reserve_check_limit(job, pending_port(pending), request->snapshots, message,
					sizeof(message));
	if (!job || !store_task_check(pending, r, message))
		return;
	reserve = store_task_new(sizeof(*reserve), pending, job, requesters);
	if (!reserve)
		return;
	reserve->snapshots = request->snapshots;
	reserve->task.begin = begin;
	reserve->task.done = on_done;
	store_task_send(&reserve->task);
}
