/* An epoch ends when a rank is lost, or leaves and is needed, and when the job breaks. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/durability/durability.h"
#include "daemon/gpu/gpu.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/own.h"
#include "daemon/life/idle.h"
#include "daemon/life/life.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/update.h"
#include "daemon/values/values.h"

/* Epoch 0 is that of a member which has been in none yet. */
static void announce_end(struct member *member, int r, const char *reason, bool may_return)
{
	Tierd__Wire__Event event = TIERD__WIRE__EVENT__INIT;
	Tierd__Wire__Event__EpochEnded ended = TIERD__WIRE__EVENT__EPOCH_ENDED__INIT;
	Tierd__Wire__Status status = TIERD__WIRE__STATUS__INIT;

	if (!member->port)
		return;
	status.code = status_from_errno(r);
	status.message = (char *)reason;
	ended.job = member->handle;
	ended.epoch = member->epoch;
	ended.reason = &status;
	ended.may_return = may_return;
	event.body_case = TIERD__WIRE__EVENT__BODY_EPOCH_ENDED;
	event.epoch_ended = &ended;
	member->port->ops->event(member->port, &event);
}

/* A decided step goes on: its ticket, and reads that are under way, are answered when they are done. */
static bool outlives_epoch(const struct job *job, struct member *member, const struct pending *pending)
{
	if (pending == member->step)
		return job->decided > job->step && !job_is_broken(job);
	return pending == member->ready || pending == member->leaving ||
	       operation_is_under_way(member, pending);
}

/* Those that it has set with a step that will not be. */
static void forget_blobs(struct member *member)
{
	blob_forget_upload(member);
	blobs_drop_undecided(member->job, member->rank);
}

static void end_for_member(struct job *job, struct member *member, int r)
{
	if (member->epoch > 0)
		announce_end(member, r, job->epoch.reason, false);
	member->next_step = NULL;
	member->is_closed = false;
	member->announced.is_made = member->announced_next.is_made = false;
	member->has_moved = false;
	gradient_forget_member(member);
	forget_blobs(member);
	QUEUE_FOREACH (link, &member->pendings) {
		struct pending *pending = queue_entry(link, struct pending, member_link);

		if (outlives_epoch(job, member, pending))
			continue;
		if (pending == member->step)
			member->step = NULL;
		pending_error(pending, r, "%s", job->epoch.reason);
	}
	if (job_is_broken(job))
		awaited_fail(member, r, job->epoch.reason);
	member_step_over(member);
}

static void end_epoch(struct job *job, int r)
{
	bool was_live = job_is_live(job);

	if (was_live)
		epoch_step(job, EPOCH_END);
	job->current.closed_count = 0;
	if (was_live) {
		job->epoch.number++;
		figures_of(job)->broken_epochs++;
	}
	arena_show_epoch(job);
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank])
			end_for_member(job, job->members.ranks[rank], r);
	if (was_live) {
		gradient_abort(job);
		step_abort(job);
	}
}

void epoch_abort(struct job *job, int r)
{
	events_of_job(
		job, EVENT_EPOCH_ENDED, &(struct log_fields){ .step = &job->decided },
		"epoch %u ends at step %llu: %s; what came after that step is lost, and all ranks have to "
		"call tierd_job_ready again",
		job->epoch.number, (unsigned long long)job->decided, job->epoch.reason);
	end_epoch(job, r);
}

/* Every rank is told what is not lost. */
static bool note_durable(struct job *job)
{
	size_t used = strlen(job->epoch.reason);
	uint64_t step;

	if (!durable_has_step(job, &step))
		return false;
	snprintf(job->epoch.reason + used, sizeof(job->epoch.reason) - used,
		 " (its last durable step is %llu)", (unsigned long long)step);
	return true;
}

static void break_alone(struct job *job, const struct log_fields *about)
{
	bool has_step = note_durable(job);

	events_of_job(
		job, EVENT_BROKEN, about, "it is broken at step %llu: %s; %s", (unsigned long long)job->step,
		job->epoch.reason,
		has_step ? "all its calls fail until its ranks have left; then it comes back at that step"
			 : "its state is lost, all its calls fail, and it has to be opened with replace, "
			   "or dropped");
	life_step(job, LIFE_BREAK);
	store_tasks_end(job);
	sweep_cancel(job);
	end_epoch(job, -EIO);
	job_fail_ready(job, -EIO, job->epoch.reason);
	node_check_idle(job->node);
}

/* Its store takes no writes any more, which another job of it has found. */
static void break_with(struct job *job, const struct job *cause)
{
	if (job_is_broken(job))
		return;
	snprintf(job->epoch.reason, sizeof(job->epoch.reason),
		 "job %s, which is in the same store, is broken: %.300s", cause->name,
		 store_message(job_nvme_store(cause)));
	break_alone(job, NULL);
	job_settle(job);
}

/* If it was their store that failed. */
static void break_others(const struct job *job)
{
	struct store_family family;

	family_get(job, &family);
	if (!family.is_fenced || family.others == 0)
		return;
	FAMILY_FOREACH (other, &job->node->jobs.live, job->location.file)
		if (other != job && durable_has_store(other))
			break_with(other, job);
}

void epoch_break(struct job *job, const struct log_fields *about)
{
	if (job_is_ending(job))
		log_about(LOG_LEVEL_ERROR, &(struct log_fields){ .job = job->name, .user = &job->uid },
			  "job %s of user %u: while it ended: %s", job->name, (unsigned)job->uid,
			  job->epoch.reason);
	else
		break_alone(job, about);
	break_others(job);
}

/* ---- Leaving ---- */

/* A member can be thrown out while its process lives and waits. */
static void answer_pendings(struct member *member, const char *reason)
{
	member->ready = member->step = member->next_step = member->leaving = NULL;
	awaited_fail(member, -ESTALE, reason);
	gradient_forget_pendings(member);
	operation_forget(member);
	for (struct queue *link = queue_first(&member->pendings); link; link = queue_first(&member->pendings))
		pending_error(queue_entry(link, struct pending, member_link), -ESTALE, "%s", reason);
}

/* A rank that leaves in good order disturbs those who need it for the open step. */
static bool has_part(const struct member *member)
{
	return member && (member->is_closed || member->next_step || gradient_has_pushed(member));
}

static bool is_needed(const struct job *job, const struct member *leaving)
{
	if (has_part(leaving))
		return true;
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (has_part(job->members.ranks[rank]))
			return true;
	return false;
}

static void leave(struct member *member, bool is_orderly, bool may_return, const char *reason)
{
	struct job *job = member->job;

	bool is_needed_now = is_needed(job, member);

	/* Who asked to leave has no client any more. */
	events_of_job(job, member->client ? EVENT_LOST : EVENT_LEFT,
		      &(struct log_fields){ .rank = &member->rank }, "%s", reason);

	/* Before its window is taken back: what it reads there from then on does not count. */
	if (!is_orderly)
		announce_end(member, -ESTALE, reason, may_return);
	if (!is_orderly && member->client)
		port_note_farewell(member->port, member->handle, reason);
	/* It is used until the end of this. */
	member->busy++;
	answer_pendings(member, reason);
	member->has_left = true;
	member->port = NULL;
	job->members.ranks[member->rank] = NULL;
	job->members.count--;
	prefetch_expect_anew(job);
	queue_push(&job->members.lingering, &member->link);

	if (!is_orderly || is_needed_now)
		job_abort(job, -ESTALE, "%s", reason);
	else
		snprintf(job->members.departed, sizeof(job->members.departed), "%s", reason);
	gradient_forget_member(member);
	gpu_leave_gradients(member);
	forget_blobs(member);
	member->busy--;
	member_release(member);
	job_settle(job);
	if (job->members.count > 0)
		return;
	if (job_is_live(job))
		epoch_step(job, EPOCH_END);
	early_give_up(job);
	durable_advance(job);
	/* Nothing of it is worth keeping; of a broken job, the news that it is. */
	if (job_is_ending(job))
		return;
	if (job_has_state(job))
		idle_begin(job);
	else
		job_drop(job);
}

void job_leave(struct member *member, bool is_orderly, const char *reason)
{
	leave(member, is_orderly, job_is_rolling_back(member->job), reason);
}

void epoch_lose(struct member *member, const char *why)
{
	char reason[128];

	snprintf(reason, sizeof(reason), "rank %u (pid %d) %s", member->rank, (int)member->pid, why);
	job_leave(member, false, reason);
}

void epoch_send_away(struct member *member, const char *reason)
{
	leave(member, false, true, reason);
}

void epoch_throw_out(struct member *member, const char *reason)
{
	job_leave(member, false, reason);
}
