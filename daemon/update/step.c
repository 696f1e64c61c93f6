/* The step: ranks close their parts, their gradients are folded (stages 0 and 1) and measured, the step is
 * decided, and a sweep applies it. step_table.c has its states. */
#include <errno.h>
#include <event2/event.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "daemon/gradients/gradients.h"
#include "daemon/model/model.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/read_ahead.h"
#include "daemon/update/early.h"
#include "daemon/update/groups.h"
#include "daemon/update/own.h"
#include "daemon/update/rates.h"
#include "daemon/update/step_listeners.h"
#include "daemon/update/update.h"

/* A rank that has closed its part announces the next one. */
void step_begin(struct pending *pending, const Tierd__Wire__StepBegin *begin)
{
	struct member *member = pending->member;
	struct announcement *announced = member->is_closed ? &member->announced_next : &member->announced;
	char message[256];

	if (!job_check_live(pending, begin->epoch))
		return;
	if (announced->is_made) {
		pending_error(pending, -EBUSY,
			      "rank %u has announced this step already, and has not taken it: if its "
			      "tierd_step failed, that one's ticket says why",
			      member->rank);
		return;
	}
	if (begin->micro_batches == 0) {
		pending_error(pending, -EINVAL, "a step of 0 micro-batches");
		return;
	}
	if (begin->micro_batches > 1 && member->job->options.is_pushed_once) {
		pending_error(pending, -EINVAL,
			      "a step of %u micro-batches, of a job that was opened as one whose units are "
			      "pushed once in a step (pushed_once)",
			      begin->micro_batches);
		return;
	}
	if (rates_read(member->job, begin->rates, &announced->rates, message, sizeof(message)) < 0) {
		pending_error(pending, -EINVAL, "%s", message);
		return;
	}
	announced->is_made = true;
	announced->micro_batches = begin->micro_batches;
	job_settle(member->job);
	pending_reply(pending, NULL);
}

/* ---- Closing ---- */

static bool has_no_leases(struct pending *pending)
{
	const struct member *member = pending->member;
	const struct catalog *catalog = &member->job->catalog;

	for (uint32_t unit = 0; unit < catalog->unit_count; unit++)
		if (unit_is_trainable(&catalog->units[unit]) && member_has_lease(member, unit)) {
			pending_error(pending, -EBUSY,
				      "unit \"%s\" is still leased by rank %u; release it before the step",
				      catalog->units[unit].name, member->rank);
			return false;
		}
	return true;
}

static bool check_rates(struct pending *pending, const struct step_rates *rates)
{
	const struct member *member = pending->member;
	const struct job *job = member->job;
	char message[832];
	int r = 0;

	/* Whatever was announced may turn out to be unwanted. */
	if (member->announced.is_made && !rates->is_dropped)
		r = rates_compare(rates, &member->announced.rates, "in tierd_step_begin", message,
				  sizeof(message));
	if (r == 0 && job->current.state == STEP_CLOSING)
		r = rates_compare(rates, &job->update->open_rates, "at the ranks that have closed this step",
				  message, sizeof(message));
	if (r == 0)
		r = groups_compare(member, message, sizeof(message));
	if (r < 0)
		pending_error(pending, r, "job %s, rank %u: %s", job->name, member->rank, message);
	return r == 0;
}

/* A silent push that was refused, and the answer not yet read when the step was sent: without this the step
 * would succeed without those gradients. */
static bool has_all_pushes(struct pending *pending, const Tierd__Wire__Step *step)
{
	const struct member *member = pending->member;

	if (step->refused_pushes == member->refused_pushes)
		return true;
	pending_error(pending, member->push_error, "an earlier push failed: %s", member->push_message);
	return false;
}

/* Of what the ranks that came before this one do. */
static bool check_kind(struct pending *pending)
{
	const struct member *member = pending->member;
	const struct job *job = member->job;
	static const char *const calls[] = { "tierd_step", "tierd_write_begin" };

	if (job->current.closed_count == 0 || pending->is_writing == step_is_writing(&job->current))
		return true;
	pending_error(pending, -EINVAL,
		      "job %s, rank %u: it calls %s, and the ranks that wait for it have called %s; all of "
		      "them have to call the same",
		      job->name, member->rank, calls[pending->is_writing], calls[!pending->is_writing]);
	return false;
}

static bool check_part(struct pending *pending, struct step_rates *rates)
{
	struct member *member = pending->member;

	if (!has_no_leases(pending) || !check_kind(pending))
		return false;
	if (pending->is_writing)
		return member->job->update->writing_listener->check_enter(pending);
	rates_complete(member->job, rates);
	rates_complete(member->job, &member->announced.rates);
	return check_rates(pending, rates);
}

static void note_part(struct pending *pending, const struct step_rates *rates)
{
	struct member *member = pending->member;
	struct job *job = member->job;

	step_happens(job, pending->is_writing ? STEP_EVENT_ENTERED : STEP_EVENT_CLOSED);
	if (!pending->is_writing) {
		rates_copy(&job->update->open_rates, rates);
		member_finish_pass(member);
	}
	member->step = pending;
	member->is_closed = true;
	member->is_finished = !pending->is_writing && !job->options.optimizer->is_by_owner;
	job->current.closed_count++;
	trace_closed(job, member->rank, gradient_open_step(job));
}

/* False: it is refused. */
static bool close_part(struct pending *pending, struct step_rates *rates)
{
	struct member *member = pending->member;
	struct job *job = member->job;

	if (job->members.departed[0]) {
		job_abort(job, -ESTALE, "%s", job->members.departed);
		return true;
	}
	if (!check_part(pending, rates))
		return false;
	gather_expect(member, gradient_open_step(job));
	note_part(pending, rates);
	gradient_close_part(member);
	gradient_unblock(job, false);
	step_advance(job);
	/* One that leaves will not finish it. */
	if (member->leaving && member_owes_step(member))
		event_active(member->leaving->timer, EV_TIMEOUT, 0);
	return true;
}

/* False: the one before it is on its way in a manner that nothing can wait behind. */
static bool check_next(struct pending *pending, const struct step_rates *rates)
{
	const struct member *member = pending->member;
	const struct job *job = member->job;

	if (member_owes_step(member))
		pending_error(pending, -EBUSY,
			      "rank %u has a step on its way that it has to finish; call %s first",
			      member->rank, member_owed_call(member));
	else if (!pending->is_writing && rates->loss_scale == 0 && !rates->is_dropped &&
		 loss_scale_is_dynamic(&job->options.loss_scale))
		pending_error(
			pending, -EINVAL,
			"job %s, rank %u: its loss scale is dynamic, and not known before the last step is "
			"decided; wait for that, or say in the rates what the loss was multiplied with",
			job->name, member->rank);
	else if (member->next_step)
		pending_error(pending, -EBUSY, "rank %u has two steps on their way already; wait for one",
			      member->rank);
	else
		return true;
	return false;
}

bool step_take(struct pending *pending, struct step_rates *rates)
{
	struct member *member = pending->member;

	if (!member->step)
		return close_part(pending, rates);
	if (!check_next(pending, rates))
		return false;
	member->next_step = pending;
	rates_copy(&member->next_rates, rates);
	gather_expect(member, gradient_open_step(member->job) + member->is_closed);
	return true;
}

static bool take(struct pending *pending, const Tierd__Wire__Step *step)
{
	const struct member *member = pending->member;
	const struct job *job = member->job;
	struct optimizer_group groups[WIRE_MAX_GROUPS];
	struct step_rates rates = { .groups = groups };
	char message[256];

	if (!has_all_pushes(pending, step))
		return false;
	if (rates_read(job, step->rates, &rates, message, sizeof(message)) < 0) {
		pending_error(pending, -EINVAL, "job %s, rank %u: %s", job->name, member->rank, message);
		return false;
	}
	return step_take(pending, &rates);
}

/* What was sent after the step waits for its version, which will not come. */
void step_fail_refused(struct member *member)
{
	gather_fail_refused(member);
	member->job->update->sweep_listener->refused(member);
}

void step_close(struct pending *pending, const Tierd__Wire__Step *step)
{
	struct member *member = pending->member;

	if (job_check_live(pending, step->epoch) && !take(pending, step))
		step_fail_refused(member);
}

static void close_next_parts(struct job *job)
{
	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		struct member *member = job->members.ranks[rank];

		if (!member || !member->next_step || member->step || !job_is_live(job))
			continue;
		if (close_part(TAKE_PTR(member->next_step), &member->next_rates))
			continue;
		step_fail_refused(member);
		member_step_over(member);
	}
}

/* ---- Decision ---- */

/* The member's next part is the open one now. */
static void reopen(struct member *member)
{
	struct announcement past = member->announced;

	member->is_closed = false;
	member->announced = member->announced_next;
	member->announced_next = past;
	member->announced_next.is_made = false;
}

void step_fail(struct job *job, int r, const char *message)
{
	step_happens(job, STEP_EVENT_FAILED);
	job->current.closed_count = 0;
	early_give_up(job);
	gradient_drop_open(job);
	job->update->commit_listener->failed(job);
	for (uint32_t rank = 0; rank < job->options.world_size; rank++) {
		struct member *member = job->members.ranks[rank];
		struct pending *pending = member ? TAKE_PTR(member->step) : NULL;

		if (!pending)
			continue;
		reopen(member);
		pending_error(pending, r, "job %s, step %llu: %s", job->name,
			      (unsigned long long)job->decided + 1, message);
		member_step_over(member);
	}
	residency_fail_awaited(job);
	close_next_parts(job);
	gradient_try_all(job);
	gradient_unblock(job, false);
}

void step_begin_decided(struct job *job)
{
	step_happens(job, STEP_EVENT_DECIDED);
	job->decided++;
	job->update->decided_ns = clock_now_ns();
	job->update->is_skipped = false;
	job->current.closed_count = 0;
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank])
			reopen(job->members.ranks[rank]);
}

static void skip(struct job *job)
{
	job->update->is_skipped = true;
	figures_of(job)->skipped_steps++;
	early_give_up(job);
	gradient_reset_open(job);
	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		residency_set_version(job, pack, job->decided);
	step_applied(job);
}

static float factor_of(const struct job *job)
{
	double scale = rates_scale(&job->update->decided_rates);
	double clip_norm = (double)job->update->decided_rates.clip_norm;
	double norm = job->update->gradient_norm, clip = 1.0;

	if (clip_norm > 0 && norm > clip_norm)
		clip = clip_norm / (norm + 1e-6);
	return (float)(scale * clip);
}

static void apply(struct job *job)
{
	int r = sweep_start(job, false);

	if (r < 0)
		job_break(job, NULL, "step %llu cannot be applied: %s", (unsigned long long)job->decided,
			  strerror(-r));
}

static void tell_skipped(const struct job *job, const char *unit)
{
	events_of_job(
		job, EVENT_SKIPPED, &(struct log_fields){ .unit = unit, .step = &job->decided },
		"step %llu is skipped: the gradients of unit \"%s\" are not finite; nothing is updated, "
		"and the loss scale is %g now",
		(unsigned long long)job->decided, unit, (double)job->update->loss_scale.value);
}

static void count(struct job *job)
{
	memcpy(job->update->groups, job->update->decided_rates.groups,
	       job->options.group_count * sizeof(*job->update->groups));
	groups_decide(job);
	step_begin_decided(job);
}

void step_decide(struct job *job, const char *broken)
{
	loss_scale_move(&job->update->loss_scale, &job->options.loss_scale, broken);
	count(job);
	if (broken) {
		tell_skipped(job, broken);
		skip(job);
	} else {
		apply(job);
	}
	gradient_try_all(job);
}

/* Gradients that nobody wants are neither folded nor measured: the loss scale learns nothing of them. */
static void drop(struct job *job)
{
	job->update->gradient_norm = 0;
	rates_copy(&job->update->decided_rates, &job->update->open_rates);
	job->update->factor = 0;
	count(job);
	events_of_job(job, EVENT_SKIPPED, &(struct log_fields){ .step = &job->decided },
		      "step %llu is skipped: its ranks drop its gradients; nothing is updated",
		      (unsigned long long)job->decided);
	skip(job);
	gradient_try_all(job);
}

static void decide(struct job *job, const struct norm *norm)
{
	const struct step_rates *rates = &job->update->open_rates;
	double sum = norm_sum(norm);
	const char *broken = isfinite(sum) ? NULL : norm_find_nonfinite(norm);
	char message[256];

	if (broken && job->options.nonfinite == NONFINITE_REPORT) {
		snprintf(message, sizeof(message), "the gradients of unit \"%s\" hold a NaN or an infinity",
			 broken);
		step_fail(job, -EDOM, message);
		return;
	}
	job->update->gradient_norm = sqrt(sum) * fabs(rates_scale(rates));
	rates_copy(&job->update->decided_rates, rates);
	job->update->factor = broken ? 0 : factor_of(job);
	if (!broken && job->options.optimizer->is_by_owner)
		reduced_begin(job);
	else
		step_decide(job, broken);
}

static const char *missing_unit(const struct job *job)
{
	for (uint32_t unit = 0; job->options.is_strict && unit < job->catalog.unit_count; unit++)
		if (unit_is_trainable(&job->catalog.units[unit]) && !gradient_has_content(job, unit))
			return job->catalog.units[unit].name;
	return NULL;
}

static void measure(struct job *job)
{
	const char *missing = missing_unit(job);
	char message[256];

	if (missing) {
		snprintf(message, sizeof(message), "nobody has pushed unit \"%s\", and the job is strict",
			 missing);
		step_fail(job, -ENODATA, message);
		return;
	}
	step_happens(job, STEP_EVENT_COMPLETE);
	if (norm_start(job, decide) < 0)
		step_fail(job, -ENOMEM, "no memory to measure its gradients");
}

void step_advance(struct job *job)
{
	reduced_advance(job);
	if (!job_is_live(job) ||
	    (job->current.state != STEP_CLOSING && job->current.state != WRITING_ENTERED) ||
	    job->current.closed_count < job->options.world_size || early_is_ending(job) ||
	    job->update->commit_listener->holds(job) || !gradient_is_complete(job))
		return;
	if (step_is_writing(&job->current))
		job->update->writing_listener->open(job);
	else if (job->update->open_rates.is_dropped)
		drop(job);
	else if (!gradient_fold(job))
		measure(job);
}

/* ---- Applied ---- */

/* The second answer comes when the step is durable. */
static void reply_applied(struct job *job, struct member *member)
{
	struct pending *pending = TAKE_PTR(member->step);
	Tierd__Wire__StepReply step = TIERD__WIRE__STEP_REPLY__INIT;

	step.step = job->step;
	step.gradient_norm = job->update->gradient_norm;
	step.is_skipped = job->update->is_skipped;
	step.loss_scale = job->update->decided_rates.loss_scale;
	step.next_loss_scale = job->update->loss_scale.value;
	port_reply(pending_port(pending), pending->number, WIRE_REPLY(STEP, step, &step));
	job->update->commit_listener->answered(member, pending);
	member_step_over(member);
}

static void tell_applied(struct job *job)
{
	account_step(job);
	if (!job->update->is_skipped)
		events_of_job(job, EVENT_APPLIED, NULL, "step %llu is applied; gradient norm %g",
			      (unsigned long long)job->step, job->update->gradient_norm);
}

void step_applied(struct job *job)
{
	bool was_writing = step_is_writing(&job->current);

	step_happens(job, STEP_EVENT_APPLIED);
	job->step = job->decided;
	job->update->commit_listener->applied(job);
	figures_of(job)->steps++;
	trace_span(job, TRACE_STEP, job->update->decided_ns, job->step);
	figures_of(job)->step_ns += clock_now_ns() - job->update->decided_ns;
	if (was_writing)
		job->update->writing_listener->end(job);
	else
		tell_applied(job);
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		if (job->members.ranks[rank] && job->members.ranks[rank]->step &&
		    !job->members.ranks[rank]->is_closed)
			reply_applied(job, job->members.ranks[rank]);
	job->update->commit_listener->may_begin(job);
	read_ahead_begin(job);
	close_next_parts(job);
	gradient_unblock(job, false);
	step_advance(job);
	prefetch_run(job);
	job_settle(job);
	node_check_idle(job->node);
}

void step_abort(struct job *job)
{
	bool was_writing = step_is_writing(&job->current) && !step_is_decided(&job->current);

	step_happens(job, STEP_EVENT_ABORTED);
	if (was_writing)
		job->update->writing_listener->forget(job);
	early_give_up(job);
	norm_give_up(job);
}
