/* The training loop of a rank: gathers, pushes in an order of its own, steps, and compares on the way. */
#include <math.h>
#include <string.h>

#include "bits.h"
#include "gpu.h"
#include "owner.h"

static uint64_t all_elements(const struct model_unit *unit)
{
	return model_trainable(unit) + model_frozen(unit);
}

/* ---- Gathers ---- */

static void compare_view(const struct rank *rank, const struct tierd_view *view, unsigned unit,
			 unsigned steps)
{
	bool with_frozen = BITS_HASH(rank->rank, unit, steps) % 8 == 0;

	for (unsigned t = 0; t < rank->model.units[unit].tensor_count; t++) {
		const struct model_tensor *tensor = &rank->model.units[unit].tensors[t];
		const char *address = tierd_at(view, t);

		if (tensor->definition.is_frozen && !with_frozen)
			continue;
		if ((uintptr_t)address % 256 != 0)
			rank_fail(rank, "%s lies at %p", tensor->name, (const void *)address);
		rank_equal(rank, "gathered parameter", unit, t, 0, tensor->elements,
			   model_element_bytes(tensor), address,
			   reference_parameter(&rank->reference, unit, t, steps));
	}
}

static void gather(struct rank *rank, unsigned unit, unsigned steps)
{
	const struct model_unit *of = &rank->model.units[unit];
	struct tierd_view view;
	bool is_on_gpu = gpu_gather(rank, unit, steps, &view);

	if (!is_on_gpu)
		rank_must(rank, tierd_gather(rank->job, unit, &view), "tierd_gather");
	if (model_trainable(of) > 0 ? view.version != steps : view.version > steps)
		rank_fail(rank, "unit %s has version %llu after %u steps", of->name,
			  (unsigned long long)view.version, steps);
	if (!is_on_gpu)
		compare_view(rank, &view, unit, steps);
	rank->gathers++;
	rank->gathered_elements += all_elements(of);
}

static void release(const struct rank *rank, unsigned unit)
{
	if (!gpu_release(rank, unit))
		rank_must(rank, tierd_release(rank->job, unit), "tierd_release");
}

/* ---- Pushes ---- */

static void push(struct rank *rank, unsigned step, unsigned micro_batch, unsigned unit)
{
	const struct model_unit *of = &rank->model.units[unit];
	struct tierd_view view;

	rank_must(rank, tierd_gradients(rank->job, unit, &view), "tierd_gradients");
	for (unsigned t = 0; t < of->tensor_count; t++) {
		struct gradient_source source = schedule_gradients(&rank->configuration, &rank->model, step,
								   micro_batch, rank->rank, unit, t);

		if (of->tensors[t].definition.is_frozen) {
			if (view.offsets[t] != TIERD_NO_OFFSET)
				rank_fail(rank, "%s has gradients", of->tensors[t].name);
			continue;
		}
		gradient_write(&source, of->tensors[t].elements, tierd_at(&view, t));
	}
	rank_must(rank, tierd_push(rank->job, unit), "tierd_push");
	rank->pushes++;
	rank->pushed_elements += model_trainable(of);
}

/* The units from position first on of the rank's order; leases only with_gathers. */
static void backward(struct rank *rank, unsigned step, unsigned micro_batch, unsigned first, unsigned end,
		     bool with_gathers)
{
	for (unsigned position = first; position < end; position++) {
		unsigned unit = schedule_order(&rank->configuration, &rank->model, step, micro_batch,
					       rank->rank, position);
		bool is_pushed = schedule_is_pushed(&rank->configuration, &rank->model, step, micro_batch,
						    rank->rank, unit);

		if (with_gathers)
			gather(rank, unit, step);
		if (is_pushed)
			push(rank, step, micro_batch, unit);
		if (with_gathers)
			release(rank, unit);
	}
}

/* ---- Steps ---- */

static void check_result(const struct rank *rank, const struct tierd_step_result *result)
{
	const struct reference_step *expected = &reference_steps(&rank->reference)[rank->ticket_step];

	if (result->step != rank->ticket_step + 1 || result->is_skipped != expected->is_skipped ||
	    result->loss_scale != expected->loss_scale ||
	    result->next_loss_scale != expected->next_loss_scale)
		rank_fail(rank, "step %u reports step %llu, %s, loss scales %g and %g", rank->ticket_step + 1,
			  (unsigned long long)result->step, result->is_skipped ? "skipped" : "taken",
			  (double)result->loss_scale, (double)result->next_loss_scale);
	if (expected->is_skipped ? isfinite(result->gradient_norm)
				 : memcmp(&result->gradient_norm, &expected->norm, sizeof(double)) != 0)
		rank_fail(rank, "step %u has the norm %a instead of %a", rank->ticket_step + 1,
			  result->gradient_norm, expected->norm);
}

static void wait_for_step(struct rank *rank)
{
	struct tierd_step_result result;

	if (!rank->ticket)
		return;
	rank_must(rank, tierd_ticket_wait(rank->ticket, TIERD_DONE, -1), "tierd_ticket_wait");
	rank_must(rank, tierd_ticket_step_result(rank->ticket, &result), "tierd_ticket_step_result");
	check_result(rank, &result);
	rank->ticket = tierd_ticket_free(rank->ticket);
}

static void announce(const struct rank *rank, unsigned step)
{
	struct tierd_group groups[MODEL_GROUPS];
	struct tierd_rates rates;

	schedule_groups(&rank->configuration, step, groups);
	rates = schedule_rates(&rank->configuration, step, groups);
	rank_must(rank, tierd_step_begin(rank->job, &rates, rank->configuration.micro_batches),
		  "tierd_step_begin");
}

static void train_micro_batch(struct rank *rank, unsigned step, unsigned micro_batch)
{
	unsigned units = rank->model.unit_count, begun = 0;

	if (micro_batch == 0 && rank_runs_ahead(rank)) {
		begun = 5;
		announce(rank, step);
		backward(rank, step, micro_batch, 0, begun, false);
		wait_for_step(rank);
	} else if (micro_batch == 0 && rank->configuration.is_announced) {
		announce(rank, step);
	}
	for (unsigned unit = 0; unit < units; unit++) {
		gather(rank, unit, step);
		release(rank, unit);
	}
	gpu_compare(rank, step, compare_view);
	wait_for_step(rank);
	backward(rank, step, micro_batch, begun, units, true);
	gpu_compare(rank, step, compare_view);
}

void rank_train(struct rank *rank)
{
	struct tierd_group groups[MODEL_GROUPS];

	for (unsigned step = 0; step < SCHEDULE_STEPS; step++) {
		struct tierd_rates rates;

		schedule_groups(&rank->configuration, step, groups);
		rates = schedule_rates(&rank->configuration, step, groups);
		for (unsigned m = 0; m < rank->configuration.micro_batches; m++)
			train_micro_batch(rank, step, m);
		if ((rank->rank + step) % 3 == 0 && !rank_runs_ahead(rank) &&
		    !rank->configuration.is_announced)
			announce(rank, step);
		rank_must(rank, tierd_step(rank->job, &rates, &rank->ticket), "tierd_step");
		rank->ticket_step = step;
		if (rank->owner)
			owner_take_step(rank->owner, rank, step);
		if (rank->rank == 0)
			wait_for_step(rank);
	}
	wait_for_step(rank);
}
