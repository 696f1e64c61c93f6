/* Drop: a job and its state end because its owner or an administrator says so. */
#include "daemon/life/life.h"

#include <errno.h>
#include <stdio.h>

#include "daemon/durability/durability.h"
#include "daemon/life/own.h"
#include "daemon/life/replaced.h"
#include "daemon/model/model.h"
#include "daemon/telemetry/telemetry.h"

void drop_ranks(struct job *job, const char *reason)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank])
			job_leave(job->members.ranks[rank], false, reason);
}

void drop_others(const struct job *job)
{
	struct store_family family;
	char reason[128];

	family_get(job, &family);
	if (!family.is_fenced)
		return;
	snprintf(reason, sizeof(reason), "the store of job %s is opened again", job->name);
	FAMILY_FOREACH (other, &job->node->jobs.live, job->location.file) {
		if (!durable_has_store(other))
			continue;
		drop_ranks(other, reason);
		life_step(other, LIFE_REOPEN);
	}
}

static void drop(struct job *job, uid_t uid)
{
	char reason[160];

	snprintf(reason, sizeof(reason), "job %s was dropped by user %u", job->name, (unsigned)uid);
	events_of_job(job, EVENT_DROPPED, NULL, "user %u has dropped it at step %llu, with its state",
		      (unsigned)uid, (unsigned long long)job->step);
	/* Or that would be there under its name. */
	job->life->replaced = replaced_remove(job->life->replaced);
	drop_ranks(job, reason);
	/* A job without state has gone with its last rank. */
	if (!job_is_ending(job))
		job_drop(job);
}

/* Of one of its jobs it is known that it is there; what else is, says the list of jobs, or nobody. */
static void refuse_lost(struct pending *pending, const struct job *job)
{
	pending_error(
		pending, -EBUSY,
		"the store of job %s, %s, cannot be opened%s: %s; drop --lost destroys all that is left of "
		"it, and what is not here now as soon as it is",
		job->name, job->location.file,
		job->life->loss.is_explained ? "" : ", and may have forks, too, which would go with it",
		job->epoch.reason);
}

void drop_job(struct pending *pending, const Tierd__Wire__JobDrop *request)
{
	const struct port *port = pending_port(pending);
	struct job *job = access_find(pending, request->name, request->has_owner, request->owner);
	char ranks[256], message[SNAPSHOT_TEXT];

	if (!job)
		return;
	if (!access_may_drop(job, port)) {
		pending_error(pending, -EPERM, "job %s is for its owner to drop, user %u", job->name,
			      (unsigned)job->uid);
		return;
	}
	if (job_is_lost(job) && job->life->loss.is_unread && !request->lost) {
		refuse_lost(pending, job);
		return;
	}
	if (family_check_end(job, message, sizeof(message)) < 0) {
		pending_error(pending, -EIO, "%s", message);
		return;
	}
	members_describe(job, ranks, sizeof(ranks));
	if (ranks[0] && !request->force) {
		pending_error(pending, -EBUSY,
			      "job %s is in use by %s; end them, or drop it with --force, which destroys its "
			      "state under them",
			      job->name, ranks);
		return;
	}
	drop(job, port->uid);
	pending_reply(pending, NULL);
}
