/* Leave: a rank closes its job, or detaches from it, and says so. */
#include "daemon/life/life.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>

#include "daemon/durability/durability.h"
#include "daemon/gpu/gpu.h"
#include "daemon/model/model.h"

static void end_membership(struct pending *pending, bool at_once)
{
	struct member *member = pending->member;
	struct memberships *client = member->client;
	const struct job *job = member->job;
	char reason[128];

	member->leaving = NULL;
	queue_remove(&pending->member_link);
	pending->member = NULL;
	gpu_leave(member);
	/* Whatever its lease page says: it has told us that it reads no more. */
	queue_remove(&member->client_link);
	member->client = NULL;
	snprintf(reason, sizeof(reason), "rank %u (pid %d) %s the job", member->rank, (int)member->pid,
		 at_once ? "detached from" : "closed");
	job_leave(member, !at_once, reason);
	refusal_tell(client->refusal, pending_node(pending), job);
}

static void leave_now(struct pending *pending, bool at_once)
{
	end_membership(pending, at_once);
	pending_reply(pending, NULL);
}

/* If the job has broken instead, it has gone, too, and is told what is lost. */
static void on_steps_over(evutil_socket_t fd, short events, void *argument)
{
	struct pending *pending = argument;
	const struct job *job = pending->member->job;
	bool is_lost = job_is_broken(job);
	char loss[JOB_LOSS_TEXT] = "";

	/* Whoever says that they are durable looks again. */
	if (durable_is_owed(job))
		return;
	if (is_lost)
		job_describe_loss(job, loss, sizeof(loss));
	end_membership(pending, false);
	if (is_lost)
		pending_error(pending, -EIO, "%s", loss);
	else
		pending_reply(pending, NULL);
}

static void hurry_steps(struct member *member)
{
	if (member->step)
		member->step->is_hurried = true;
	if (member->next_step)
		member->next_step->is_hurried = true;
	durable_hurry(member->job);
}

/* In good order it leaves when its steps have been answered, and are durable, or the job is that without any;
 * from a turn of the loop of its own, since whoever answers them still looks at the members. */
void leave_job(struct pending *pending, const Tierd__Wire__JobLeave *leave)
{
	struct member *member = pending->member;

	bool has_all = !member_has_steps(member) && !durable_is_owed(member->job);

	/* A step that it has not finished does not end any more. */
	if (leave->at_once || has_all || member_owes_step(member)) {
		leave_now(pending, leave->at_once);
	} else if (member->leaving) {
		pending_error(pending, -EBUSY, "this rank is closing the job already");
	} else {
		pending->timer = event_new(pending_node(pending)->loop, -1, 0, on_steps_over, pending);
		if (!pending->timer)
			pending_error(pending, -ENOMEM, "out of memory");
		else
			member->leaving = pending;
		hurry_steps(member);
	}
}
