#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/library/calls/calls.h"
#include "client/library/connection/structure.h"
#include "client/library/pages/buffers.h"
#include "common/cleanup.h"
#include "common/clock.h"

/* ---- Rates ---- */

struct wire_rates {
	Tierd__Wire__Rates rates;
	struct wire_groups groups;
};

static void wire_rates_free(struct wire_rates *wire)
{
	wire_groups_free(&wire->groups);
}

static int encode_rates(const struct tierd_job *job, const struct tierd_rates *given,
			struct wire_rates *ret_rates)
{
	struct tierd_rates rates = TIERD_RATES_INIT;
	int r = STRUCTURE_TAKE(&rates, given, "the rates have", TIERD_RATES_INIT);

	if (r < 0)
		return r;
	/* The daemon does not use it. */
	if (job->is_by_owner || rates.drop)
		rates.learning_rate = 0;
	if (isnan(rates.learning_rate))
		return message_fail(
			-EINVAL,
			"the rates' learning_rate is NaN, which TIERD_RATES_INIT sets for one that is not "
			"given; set it (0 is allowed, and trains nothing)");
	if (rates.group_count != 0 && rates.group_count != job->group_count)
		return message_fail(-EINVAL, "the rates have %u groups, but job \"%s\" has %u",
				    rates.group_count, job->name, job->group_count);
	if (rates.group_count != 0 && !rates.groups)
		return message_fail(-EINVAL, "group_count is %u, but groups is NULL", rates.group_count);
	r = job_encode_groups(rates.groups, rates.group_count, &ret_rates->groups);
	if (r < 0)
		return r;
	tierd__wire__rates__init(&ret_rates->rates);
	ret_rates->rates.learning_rate = rates.learning_rate;
	ret_rates->rates.gradient_scale = rates.gradient_scale;
	ret_rates->rates.loss_scale = rates.loss_scale;
	ret_rates->rates.has_clip_norm = !(rates.clip_norm < 0);
	ret_rates->rates.clip_norm = rates.clip_norm;
	ret_rates->rates.is_dropped = rates.drop;
	ret_rates->rates.n_groups = rates.group_count;
	ret_rates->rates.groups = ret_rates->groups.pointers;
	return 0;
}

static int step_begin(struct tierd_job *job, const struct tierd_rates *rates, uint32_t micro_batches)
{
	Tierd__Wire__StepBegin begin = TIERD__WIRE__STEP_BEGIN__INIT;
	_cleanup_(wire_rates_free) struct wire_rates wire = { .groups = { NULL, NULL } };
	int r = encode_rates(job, rates, &wire);

	if (r < 0)
		return r;
	begin.job = job->number;
	begin.epoch = job->epoch;
	begin.rates = &wire.rates;
	begin.micro_batches = micro_batches;
	job->has_undecided = true;
	return ticket_call(job, WIRE_REQUEST(STEP_BEGIN, step_begin, &begin));
}

int tierd_step_begin(struct tierd_job *job, const struct tierd_rates *rates, uint32_t micro_batches)
{
	int r = CHECK_GIVEN(job, rates);

	return r < 0 ? r : JOB_CALL(job, JOB_READY, step_begin(job, rates, micro_batches));
}

/* ---- Step ---- */

static void applied(struct tierd_ticket *ticket, const Tierd__Wire__StepReply *reply)
{
	ticket->step = (struct tierd_step_result){
		.step = reply->step,
		.gradient_norm = reply->gradient_norm,
		.is_skipped = reply->is_skipped,
		.loss_scale = reply->loss_scale,
		.next_loss_scale = reply->next_loss_scale,
	};
	ticket->job->state.step = reply->step;
	ticket->job->state.loss_scale = reply->next_loss_scale;
	/* All pushes before the step were summed. */
	ticket_settle_silent(ticket->job, ticket->request);
	ticket_complete(ticket, TIERD_DONE, 0, NULL);
}

/* The loss scale of the next step is not known before this one is decided. */
static void reduced(struct tierd_ticket *ticket, const Tierd__Wire__StepReduced *reply)
{
	ticket->step = (struct tierd_step_result){
		.step = reply->step,
		.gradient_norm = reply->gradient_norm,
		.loss_scale = reply->loss_scale,
		.next_loss_scale = reply->loss_scale,
	};
	ticket_complete(ticket, TIERD_REDUCED, 0, NULL);
}

static bool is_reduced_reply(const struct tierd_ticket *ticket, const struct answer *answer)
{
	return answer->status == 0 && ticket->is_reducing && !ticket->events[TIERD_REDUCED].is_here &&
	       answer->reply->body_case == TIERD__WIRE__REPLY__BODY_STEP_REDUCED;
}

static void step_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	struct tierd_job *job = ticket->job;

	if (is_reduced_reply(ticket, answer)) {
		reduced(ticket, answer->reply->step_reduced);
	} else if (ticket->events[TIERD_DONE].is_here) {
		ticket_complete(ticket, TIERD_DURABLE, answer->status, answer->text);
	} else if (answer->status < 0) {
		/* No gather must wait for a step that will not come. */
		if (ticket->epoch == job->epoch) {
			job->awaited--;
			job->has_undecided = true;
		}
		/* The step was refused because of a push whose refusal was not reported yet: this error
		 * reports it. */
		if (ticket->refused_pushes != job->refused_pushes)
			job->push_error = 0;
		ticket_complete(ticket, TIERD_DONE, answer->status, answer->text);
	} else if (answer->reply->body_case != TIERD__WIRE__REPLY__BODY_STEP) {
		ticket_violation(ticket, "another reply");
	} else {
		applied(ticket, answer->reply->step);
	}
}

/* Asks for the step to become durable soon; the reply is not waited for. */
static void step_hurry(struct tierd_ticket *ticket)
{
	Tierd__Wire__StepHurry hurry = TIERD__WIRE__STEP_HURRY__INIT;
	struct tierd_job *job = ticket->job;

	if (!job->is_paced || ticket->is_hurried || ticket->events[TIERD_DURABLE].is_here)
		return;
	ticket->is_hurried = true;
	hurry.job = job->number;
	hurry.request = ticket->request;
	connection_post(job->node, connection_number(job->node),
			WIRE_REQUEST(STEP_HURRY, step_hurry, &hurry));
}

static const struct ticket_kind step_kind = {
	.name = "tierd_step", .has_durable = true, .answer = step_answer, .hurry = step_hurry
};

#define MOST_NAMES 16

/* Units that are held; as many as fit into the text are named. */
struct held_units {
	char names[768];
	uint32_t count, named;
};

static void add_held(struct held_units *held, const char *name)
{
	size_t used = strlen(held->names);

	held->count++;
	if (held->named == MOST_NAMES || used + strlen(name) + 5 > sizeof(held->names))
		return;
	snprintf(held->names + used, sizeof(held->names) - used, "%s\"%s\"", used > 0 ? ", " : "", name);
	held->named++;
}

static int refuse_held(const struct held_units *held, const char *what, const char *advice,
		       const char *before)
{
	char more[32] = "";

	if (held->count == 0)
		return 0;
	if (held->count > held->named)
		snprintf(more, sizeof(more), " and %u more", held->count - held->named);
	return message_fail(-EBUSY, "%s of %u unit%s are held: %s%s; %s before %s", what, held->count,
			    held->count > 1 ? "s" : "", held->names, more, advice, before);
}

static int check_place(struct tierd_job *job, enum place place, const char *what, const char *before)
{
	struct held_units leases = { 0 };

	for (uint32_t unit = 0; unit < job->unit_count; unit++)
		if (job->hot[unit].awaited_mask && !gathers_forget(job, place, unit))
			add_held(&leases, job_unit_name(job, unit));
	return refuse_held(&leases, what, "release them", before);
}

/* This rank holds no lease on what is trained, and no gradient buffer: -EBUSY names those that it does;
 * before: for what they have to go. */
static int check_leases(struct tierd_job *job, const char *before)
{
	struct held_units buffers = { 0 };
	uint32_t next = 0;
	int r;

	for (const char *name = gradients_held(job, &next); name; name = gradients_held(job, &next))
		add_held(&buffers, name);
	r = refuse_held(&buffers, "gradient buffers", "push or discard them", before);
	if (r == 0)
		r = check_place(job, PLACE_HOST, "leases", before);
	return r < 0 ? r : check_place(job, PLACE_GPU, "leases on a GPU", before);
}

int step_ticket_new(struct tierd_job *job, const char *before, struct tierd_ticket **ret_ticket)
{
	int r = gathers_settle(job);

	if (r == 0)
		r = push_check(job);
	if (r == 0)
		r = check_leases(job, before);
	if (r == 0)
		attachment_collect(job);
	return r < 0 ? r : ticket_new(job->node, job, &step_kind, ret_ticket);
}

/* Whoever has gathered the old version on the GPU has released it, and the update comes after what was queued
 * until then. Nobody gathers it any more, so no lease that is not seen here is taken. */
static int fence(struct tierd_job *job)
{
	struct gpu_tier *tier = job->attachment->gpu;
	int r;

	if (!tier)
		return 0;
	r = check_place(job, PLACE_GPU, "leases on a GPU", "the step");
	return r < 0 ? r : gpu_tier_fence(tier);
}

int step_ticket_send(struct tierd_ticket *ticket, const Tierd__Wire__Request *request)
{
	struct tierd_job *job = ticket->job;
	int r;

	/* Before it is sent: a gather after it must not find the old version. */
	job->awaited++;
	r = fence(job);
	if (r < 0)
		ticket_abandon(ticket);
	else
		r = ticket_send(ticket, request);
	if (r < 0)
		job->awaited--;
	return r;
}

static int step_send(struct tierd_job *job, const struct tierd_rates *rates, bool is_awaited,
		     struct tierd_ticket **ret_ticket)
{
	Tierd__Wire__Step step = TIERD__WIRE__STEP__INIT;
	struct tierd_ticket *ticket = NULL;
	_cleanup_(wire_rates_free) struct wire_rates wire = { .groups = { NULL, NULL } };
	int r = encode_rates(job, rates, &wire);

	if (r == 0)
		r = step_ticket_new(job, "the step", &ticket);
	if (r < 0)
		return r;
	ticket->is_reducing = job->is_by_owner;
	step.job = job->number;
	step.epoch = job->epoch;
	step.rates = &wire.rates;
	step.is_awaited = is_awaited;
	step.refused_pushes = ticket->refused_pushes = job->refused_pushes;
	r = step_ticket_send(ticket, WIRE_REQUEST(STEP, step, &step));
	if (r < 0)
		return r;
	job->has_undecided = false;
	gradients_rewind(job);
	*ret_ticket = ticket;
	return 0;
}

static int step_locked(struct tierd_job *job, const struct tierd_rates *rates,
		       struct tierd_ticket **ret_ticket)
{
	struct tierd_ticket *ticket = NULL;
	uint64_t start = clock_now_ns();
	int r;

	if (job->is_by_owner && !ret_ticket)
		return message_fail(-EINVAL,
				    "job \"%s\" has the optimizer none: its step needs a ticket, to wait for "
				    "TIERD_REDUCED, and tierd_step_finish before it is done",
				    job->name);
	r = step_send(job, rates, !ret_ticket, &ticket);
	if (r == 0 && ret_ticket) {
		*ret_ticket = ticket;
	} else if (r == 0) {
		r = ticket_await(ticket, TIERD_DONE, connection_deadline(job->node, -1));
		ticket_abandon(ticket);
	}
	job->step_wait_ns += clock_now_ns() - start;
	return r;
}

int tierd_step(struct tierd_job *job, const struct tierd_rates *rates, struct tierd_ticket **ret_ticket)
{
	int r = CHECK_GIVEN(job, rates);

	return r < 0 ? r : JOB_CALL(job, JOB_READY, step_locked(job, rates, ret_ticket));
}

int tierd_ticket_step_result(struct tierd_ticket *ticket, struct tierd_step_result *ret_result)
{
	int r = CHECK_GIVEN(ticket, ret_result);

	if (r == 0)
		r = ticket_enter_result(ticket, &step_kind);
	if (r < 0)
		return r;
	*ret_result = ticket->step;
	ticket_exit(ticket->node);
	return 0;
}

static int step_finish(struct tierd_job *job)
{
	Tierd__Wire__StepFinish finish = TIERD__WIRE__STEP_FINISH__INIT;

	finish.job = job->number;
	finish.epoch = job->epoch;
	return ticket_call(job, WIRE_REQUEST(STEP_FINISH, step_finish, &finish));
}

int tierd_step_finish(struct tierd_job *job)
{
	int r = CHECK_GIVEN(job);

	return r < 0 ? r : JOB_CALL(job, JOB_READY, step_finish(job));
}
