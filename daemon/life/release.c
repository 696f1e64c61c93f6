/* Release: an idle job gives its host memory back at once, because its owner or an administrator says so. */
#include "daemon/life/life.h"

#include <errno.h>

#include "daemon/model/model.h"
#include "daemon/life/idle.h"
#include "daemon/resources/resources.h"

static int check(const struct job *job, const struct port *port, char *message, size_t size)
{
	char ranks[256];

	if (!access_may_drop(job, port))
		return refuse(message, size, -EPERM, "it is for its owner to release, user %u",
			      (unsigned)job->uid);
	members_describe(job, ranks, sizeof(ranks));
	if (ranks[0])
		return refuse(message, size, -EBUSY, "it is in use by %s; end them first", ranks);
	if (job_is_broken(job))
		return refuse(message, size, -EIO, "it is broken: %s", job->epoch.reason);
	if (!job_is_idle(job) || job->state == JOB_RETURNING)
		return refuse(message, size, -EAGAIN, "it is %s; try again", job_status_name(job));
	if (!placement_may_release(job))
		return refuse(
			message, size, -EOPNOTSUPP,
			"some of its state is in host memory alone, since it is not durable, and would be "
			"lost; tierctl export saves its values");
	return 0;
}

static void reply(struct pending *pending, const struct job *job, uint64_t bytes)
{
	Tierd__Wire__JobReleaseReply result = TIERD__WIRE__JOB_RELEASE_REPLY__INIT;

	result.bytes = bytes;
	result.step = job->step;
	pending_reply(pending, WIRE_REPLY(JOB_RELEASE, job_release, &result));
}

void release_job(struct pending *pending, const Tierd__Wire__JobRelease *request)
{
	struct job *job = access_find(pending, request->name, request->has_owner, request->owner);
	char message[640];
	uint64_t before;
	int r;

	if (!job)
		return;
	before = budget_host_bytes(job);
	r = check(job, pending_port(pending), message, sizeof(message));
	if (r == 0 && !idle_give(job))
		r = idle_refuse(job, message, sizeof(message));
	if (r < 0)
		pending_error(pending, r, "job %s: %s", job->name, message);
	else
		reply(pending, job, before - budget_host_bytes(job));
}
