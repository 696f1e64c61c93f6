#include "sum.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct summation {
	const struct configuration *configuration;
	const struct model *model;
	unsigned step, unit;
	uint64_t count;
};

float *sum_buffer(const struct model_unit *unit)
{
	float *buffer = calloc(model_trainable(unit) + 1, sizeof(*buffer));

	if (buffer)
		return buffer;
	perror("no memory for gradients");
	exit(1);
}

/* The rank's push number (from 0) of the unit in this step; false: it has not so many. */
static bool take_push(const struct summation *summation, unsigned rank, unsigned number, float *values)
{
	const struct model_unit *unit = &summation->model->units[summation->unit];
	unsigned micro_batch = 0;

	for (;; micro_batch++) {
		if (micro_batch == summation->configuration->micro_batches)
			return false;
		if (schedule_is_pushed(summation->configuration, summation->model, summation->step,
				       micro_batch, rank, summation->unit) &&
		    number-- == 0)
			break;
	}
	memset(values, 0, summation->count * sizeof(*values));
	for (unsigned t = 0; t < unit->tensor_count; t++) {
		struct gradient_source source =
			schedule_gradients(summation->configuration, summation->model, summation->step,
					   micro_batch, rank, summation->unit, t);

		if (!unit->tensors[t].definition.is_frozen)
			gradient_values(&source, unit->tensors[t].elements,
					values + model_first(unit, &unit->tensors[t]));
	}
	return true;
}

static void add(float *sums, const float *values, uint64_t count)
{
	for (uint64_t i = 0; i < count; i++)
		sums[i] = sums[i] + values[i];
}

/* All pushes of one rank, in order. */
static bool sum_rank(const struct summation *summation, unsigned rank, float *sums)
{
	const struct model_unit *unit = &summation->model->units[summation->unit];
	float *values;

	if (!take_push(summation, rank, 0, sums))
		return false;
	values = sum_buffer(unit);
	for (unsigned number = 1; take_push(summation, rank, number, values); number++)
		add(sums, values, summation->count);
	free(values);
	return true;
}

/* Of ranks first … first + ranks - 1: their push of that number, or (number < 0) each one's sum of all. */
static bool sum_tree(const struct summation *summation, unsigned first, unsigned ranks, int number,
		     float *sums)
{
	unsigned split = 1;

	if (ranks == 1)
		return number < 0 ? sum_rank(summation, first, sums)
				  : take_push(summation, first, (unsigned)number, sums);
	while (split * 2 < ranks)
		split *= 2;
	float *right = sum_buffer(&summation->model->units[summation->unit]);
	bool has_left = sum_tree(summation, first, split, number, sums);
	bool has_right = sum_tree(summation, first + split, ranks - split, number, right);

	if (has_left && has_right)
		add(sums, right, summation->count);
	else if (has_right)
		memcpy(sums, right, summation->count * sizeof(*sums));
	free(right);
	return has_left || has_right;
}

bool sum_unit(const struct configuration *configuration, const struct model *model, unsigned step,
	      unsigned unit, float *sums)
{
	struct summation summation = { configuration, model, step, unit,
				       model_trainable(&model->units[unit]) };
	unsigned ranks = configuration->ranks;
	float *values;

	if (summation.count == 0)
		return false;
	if (configuration_is_early(configuration))
		return sum_tree(&summation, 0, ranks, -1, sums);
	if (!sum_tree(&summation, 0, ranks, 0, sums))
		return false;
	values = sum_buffer(&model->units[unit]);
	for (int number = 1; sum_tree(&summation, 0, ranks, number, values); number++)
		add(sums, values, summation.count);
	free(values);
	return true;
}
