/* A reduced step, of the optimizer none: its gradients are summed and measured, and each rank reads those of
 * its part and writes the new masters in their place. It is not decided yet, so the loss of a rank costs it.
 *
 * CLOSED, and its rank owes its part → REDUCED → each rank finishes → decided when all have, and no copy of
 * theirs is under way. A skipped step never comes here; the end of the epoch drops one that has. */
#include <errno.h>

#include "daemon/gradients/gradients.h"
#include "daemon/model/model.h"
#include "daemon/update/own.h"
#include "daemon/update/step_listeners.h"
#include "daemon/update/update.h"

/* ---- Begin ---- */

static void announce(const struct job *job, const struct member *member)
{
	Tierd__Wire__StepReduced reduced = TIERD__WIRE__STEP_REDUCED__INIT;

	reduced.step = gradient_open_step(job);
	reduced.gradient_norm = job->update->gradient_norm;
	reduced.loss_scale = job->update->decided_rates.loss_scale;
	port_reply(pending_port(member->step), member->step->number,
		   WIRE_REPLY(STEP_REDUCED, step_reduced, &reduced));
}

static void forget_written(struct unit *unit)
{
	for (uint32_t i = 0; i < unit->tensor_count; i++)
		unit->tensors[i].written_count = 0;
}

void reduced_begin(struct job *job)
{
	for (uint32_t unit = 0; unit < job->catalog.unit_count; unit++)
		forget_written(&job->catalog.units[unit]);
	step_happens(job, STEP_EVENT_HANDED_OUT);
	if (step_is_writing(&job->current))
		job->update->gradient_norm = 0;
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		announce(job, job->members.ranks[rank]);
}

/* ---- Reading and writing ---- */

static bool check_time(struct pending *pending)
{
	const struct member *member = pending->member;
	const struct job *job = member->job;
	const char *why = NULL;

	if (!member->is_closed || step_is_writing(&job->current))
		why = "it has closed none, or one that was skipped";
	else if (member->is_finished)
		why = "it has finished this one already";
	else if (job->current.state != STEP_REDUCED)
		why = "this one is not reduced yet; wait for TIERD_REDUCED";
	if (why)
		pending_error(
			pending, -EBUSY,
			"rank %u reads gradients, writes masters and finishes while a step of its own is "
			"reduced, and %s",
			member->rank, why);
	return !why;
}

bool reduced_check(struct pending *pending, uint32_t index, const struct tensor *tensor)
{
	const struct job *job = pending->member->job;

	if (!job_check_live(pending, pending->member->epoch) || !check_time(pending))
		return false;
	if (tensor->is_present)
		return true;
	if (gradient_has_content(job, index))
		pending_error(
			pending, -ENODATA,
			"no rank has a gradient of tensor \"%s\" in this step, which does not update it",
			tensor->name);
	else
		pending_error(
			pending, -ENODATA,
			"nobody has pushed unit \"%s\" in this step: it has no gradients, and is not updated",
			job->catalog.units[index].name);
	return false;
}

/* ---- End ---- */

void reduced_advance(struct job *job)
{
	if (!step_is_reduced(&job->current) || job->update->shard_copies > 0 ||
	    job->update->commit_listener->holds(job))
		return;
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (!job->members.ranks[rank] || !job->members.ranks[rank]->is_finished)
			return;
	if (step_is_writing(&job->current))
		job->update->writing_listener->decide(job);
	else
		step_decide(job, NULL);
}

void reduced_begin_copy(struct job *job)
{
	job->update->shard_copies++;
}

void reduced_end_copy(struct job *job)
{
	job->update->shard_copies--;
}

unsigned reduced_copies(const struct job *job)
{
	return job->update->shard_copies;
}

void reduced_end_part(struct member *member)
{
	member->is_finished = true;
	reduced_advance(member->job);
}

void reduced_finish(struct pending *pending, const Tierd__Wire__StepFinish *finish)
{
	struct member *member = pending->member;

	if (!job_check_live(pending, finish->epoch) || !check_time(pending))
		return;
	pending_reply(pending, NULL);
	reduced_end_part(member);
}
