#include "owner.h"

#include <errno.h>
#include <stdlib.h>

#include "formula.h"

/* The part of a tensor in the rank's shard. */
struct part {
	uint64_t first, count;
	float *slots[2];
};

struct owner {
	struct part parts[MODEL_MAX_UNITS][MODEL_MAX_TENSORS];
	unsigned updates[MODEL_MAX_UNITS];
};

static void *allocate(const struct rank *rank, uint64_t count)
{
	void *values = calloc(count + 1, sizeof(float));

	if (!values)
		rank_fail(rank, "no memory");
	return values;
}

struct owner *owner_new(const struct rank *rank)
{
	struct owner *owner = calloc(1, sizeof(*owner));

	if (!owner)
		rank_fail(rank, "no memory");
	for (unsigned u = 0; u < rank->model.unit_count; u++)
		for (unsigned t = 0; t < rank->model.units[u].tensor_count; t++) {
			struct part *part = &owner->parts[u][t];

			if (rank->model.units[u].tensors[t].definition.is_frozen)
				continue;
			rank_must(rank, tierd_tensor_shard(rank->job, u, t, &part->first, &part->count),
				  "tierd_tensor_shard");
			for (unsigned slot = 0; slot < 2; slot++)
				part->slots[slot] = allocate(rank, part->count);
		}
	return owner;
}

struct owner *owner_free(struct owner *owner)
{
	for (unsigned u = 0; u < MODEL_MAX_UNITS; u++)
		for (unsigned t = 0; t < MODEL_MAX_TENSORS; t++)
			for (unsigned slot = 0; slot < 2; slot++)
				free(owner->parts[u][t].slots[slot]);
	free(owner);
	return NULL;
}

/* In two pieces, the second one first. */
static void write_masters(const struct rank *rank, unsigned unit, unsigned tensor, const struct part *part,
			  const float *masters)
{
	uint64_t half = part->count / 2;

	rank_must(rank,
		  tierd_tensor_write(rank->job, unit, tensor, part->first + half, part->count - half,
				     masters + half, true),
		  "tierd_tensor_write");
	rank_must(rank, tierd_tensor_write(rank->job, unit, tensor, part->first, half, masters, true),
		  "tierd_tensor_write");
}

/* The formula is the built-in optimizer's; its factor has been applied. */
static void update_part(const struct rank *rank, const struct part *part, unsigned unit, unsigned index,
			unsigned step, unsigned update)
{
	const struct model_tensor *tensor = &rank->model.units[unit].tensors[index];
	float *gradients = allocate(rank, part->count), *masters = allocate(rank, part->count);
	struct tierd_group groups[MODEL_GROUPS];

	rank_must(rank,
		  tierd_tensor_read(rank->job, unit, index, "gradient", part->first, part->count, gradients),
		  "tierd_tensor_read of gradients");
	rank_must(rank,
		  tierd_tensor_read(rank->job, unit, index, "master", part->first, part->count, masters),
		  "tierd_tensor_read of masters");
	schedule_groups(&rank->configuration, step, groups);
	const struct tierd_group *group = &groups[tensor->definition.group];
	const struct formula formula = {
		.rule = rank->configuration.rule,
		.group = group,
		.rate = (double)schedule_rates(&rank->configuration, step, groups).learning_rate *
			(double)group->learning_rate,
		.factor = 1.0f,
		.update = update,
	};

	formula_apply(&formula, part->count, gradients, masters, part->slots[0], part->slots[1]);
	write_masters(rank, unit, index, part, masters);
	free(gradients);
	free(masters);
}

static bool is_pushed(const struct rank *rank, unsigned step, unsigned unit)
{
	for (unsigned other = 0; other < rank->configuration.ranks; other++)
		for (unsigned m = 0; m < rank->configuration.micro_batches; m++)
			if (schedule_is_pushed(&rank->configuration, &rank->model, step, m, other, unit))
				return true;
	return false;
}

static void expect_no_gradients(const struct rank *rank, unsigned unit, const struct part *part)
{
	float value;

	if (tierd_tensor_read(rank->job, unit, 0, "gradient", part->first, 1, &value) != -ENODATA)
		rank_fail(rank, "unit %s has gradients that nobody pushed", rank->model.units[unit].name);
}

static void update_unit(struct owner *owner, const struct rank *rank, unsigned step, unsigned unit)
{
	if (!is_pushed(rank, step, unit)) {
		if (owner->parts[unit][0].count > 0)
			expect_no_gradients(rank, unit, &owner->parts[unit][0]);
		return;
	}
	owner->updates[unit]++;
	for (unsigned t = 0; t < rank->model.units[unit].tensor_count; t++)
		if (owner->parts[unit][t].count > 0)
			update_part(rank, &owner->parts[unit][t], unit, t, step, owner->updates[unit]);
}

void owner_take_step(struct owner *owner, const struct rank *rank, unsigned step)
{
	struct tierd_step_result result;

	rank_must(rank, tierd_ticket_wait(rank->ticket, TIERD_REDUCED, -1), "tierd_ticket_wait");
	rank_must(rank, tierd_ticket_step_result(rank->ticket, &result), "tierd_ticket_step_result");
	if (result.step != step + 1)
		rank_fail(rank, "step %u is reduced as step %llu", step + 1, (unsigned long long)result.step);
	if (result.is_skipped)
		return;
	for (unsigned u = 0; u < rank->model.unit_count; u++)
		update_unit(owner, rank, step, u);
	rank_must(rank, tierd_step_finish(rank->job), "tierd_step_finish");
}

void owner_compare(const struct owner *owner, const struct rank *rank)
{
	static const char *const names[] = { "first slot", "second slot" };

	for (unsigned u = 0; u < rank->model.unit_count; u++)
		for (unsigned t = 0; t < rank->model.units[u].tensor_count; t++)
			for (unsigned slot = 0; slot < 2; slot++) {
				const struct part *part = &owner->parts[u][t];

				if (part->count > 0)
					rank_equal(rank, names[slot], u, t, part->first, part->count,
						   sizeof(float), part->slots[slot],
						   reference_slot(&rank->reference, u, t, slot) +
							   part->first);
			}
}
