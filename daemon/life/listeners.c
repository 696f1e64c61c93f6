/* Who hears what the modules of a job report: the tables that the lower ones are given. */
#include "daemon/durability/durability.h"
#include "daemon/gpu/gpu.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/own.h"
#include "daemon/life/replaced.h"
#include "daemon/life/state.h"
#include "daemon/model/model.h"
#include "daemon/update/update.h"
#include "daemon/values/values.h"

static const struct gradient_listener gradient_listener = {
	.changed = step_advance,
	.summed = early_note_sum,
	.measured = durable_advance,
	.sums_came = operation_resume,
	.is_giving_up = early_is_ending,
	.has_taken_sums = update_has_taken_sums,
	.find_norm = early_norm,
};

static const struct commit_listener commit_listener = {
	.holds = durable_holds,
	.is_quiet = durable_is_quiet,
	.is_behind = durable_is_behind,
	.seconds = pace_seconds,
	.lets_update = backup_lets,
	.failed = blobs_fail_step,
	.applied = blobs_apply,
	.answered = durable_answer,
	.may_begin = durable_advance,
};

static const struct writing_listener writing_listener = {
	.check_enter = writing_check_enter,
	.open = writing_open,
	.decide = writing_decide,
	.end = writing_end,
	.forget = writing_forget,
};

static void on_initialized(struct job *job)
{
	life_step(job, LIFE_INITIALIZED);
	if (!durable_has_store(job))
		job->life->replaced = replaced_remove(job->life->replaced);
	durable_advance(job);
}

static const struct sweep_listener sweep_listener = {
	.began = readers_enlist,
	.came_to = readers_raise,
	.written = operation_resume,
	.flushed = values_flushed,
	.refused = operation_fail_refused,
	.initialized = on_initialized,
};

static const struct segment_listener segment_listener = {
	.came = gpu_segment_came,
	.leaves = gpu_segment_leaves,
};

void listeners_set(struct job *job)
{
	gradients_listen(job, &gradient_listener);
	update_listen(job, &commit_listener, &writing_listener, &sweep_listener);
	residency_listen(job, &sweep_residency_listener, &warm_tenant, &segment_listener);
}
