#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "bits.h"
#include "formula.h"
#include "sum.h"

/* The master and two slots, whether the optimizer has them or not. */
#define STATES 3

/* ---- Memory ---- */

static size_t part_bytes(const struct model_tensor *tensor)
{
	size_t values = tensor->elements * model_element_bytes(tensor);

	if (tensor->definition.is_frozen)
		return values;
	return (SCHEDULE_STEPS + 1) * values + STATES * sizeof(float) * tensor->elements;
}

static size_t lay_out(const struct model *model, size_t offsets[MODEL_MAX_UNITS][MODEL_MAX_TENSORS])
{
	size_t offset = 4096;

	for (unsigned u = 0; u < model->unit_count; u++)
		for (unsigned t = 0; t < model->units[u].tensor_count; t++) {
			offsets[u][t] = offset;
			offset += (part_bytes(&model->units[u].tensors[t]) + 63) / 64 * 64;
		}
	return offset;
}

size_t reference_length(const struct model *model)
{
	size_t offsets[MODEL_MAX_UNITS][MODEL_MAX_TENSORS];

	return lay_out(model, offsets);
}

void reference_map(struct reference *reference, const struct model *model, int fd, bool is_writable)
{
	*reference = (struct reference){ .model = model };
	reference->length = lay_out(model, reference->offsets);
	reference->base =
		mmap(NULL, reference->length, PROT_READ | (is_writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	if (reference->base != MAP_FAILED)
		return;
	perror("the reference cannot be mapped");
	exit(1);
}

void reference_unmap(struct reference *reference)
{
	munmap(reference->base, reference->length);
}

struct reference_step *reference_steps(const struct reference *reference)
{
	return (struct reference_step *)reference->base;
}

void *reference_parameter(const struct reference *reference, unsigned unit, unsigned tensor, unsigned steps)
{
	const struct model_tensor *part = &reference->model->units[unit].tensors[tensor];
	size_t snapshot = part->definition.is_frozen ? 0 : steps;
	size_t states = part->definition.is_frozen ? 0 : STATES * sizeof(float) * part->elements;

	return reference->base + reference->offsets[unit][tensor] + states +
	       snapshot * part->elements * model_element_bytes(part);
}

/* The master, then the slots. */
static float *state_of(const struct reference *reference, unsigned unit, unsigned tensor, unsigned state)
{
	const struct model_tensor *part = &reference->model->units[unit].tensors[tensor];

	if (part->definition.is_frozen)
		return NULL;
	return (float *)(reference->base + reference->offsets[unit][tensor]) + state * part->elements;
}

float *reference_master(const struct reference *reference, unsigned unit, unsigned tensor)
{
	return state_of(reference, unit, tensor, 0);
}

float *reference_slot(const struct reference *reference, unsigned unit, unsigned tensor, unsigned slot)
{
	return state_of(reference, unit, tensor, 1 + slot);
}

/* ---- Training ---- */

struct training {
	const struct reference *reference;
	const struct model *model;
	const struct configuration *configuration;
	float *sums[MODEL_MAX_UNITS];
	bool has_content[MODEL_MAX_UNITS];
	unsigned updates[MODEL_MAX_UNITS];
	struct tierd_job_options options; /* of the loss scale */
	float loss_scale;
	unsigned good_steps; /* since that changed */
};

static void copy_parameter(const float *masters, const struct model_tensor *tensor, void *parameters)
{
	for (uint64_t i = 0; i < tensor->elements; i++)
		bits_put(tensor->definition.format, parameters, i, masters[i]);
}

static void begin(struct training *training, float *const initial[MODEL_MAX_UNITS][MODEL_MAX_TENSORS])
{
	const struct reference *reference = training->reference;

	for (unsigned u = 0; u < training->model->unit_count; u++)
		for (unsigned t = 0; t < training->model->units[u].tensor_count; t++) {
			const struct model_tensor *tensor = &training->model->units[u].tensors[t];
			size_t bytes = tensor->elements * sizeof(float);

			copy_parameter(initial[u][t], tensor, reference_parameter(reference, u, t, 0));
			if (tensor->definition.is_frozen)
				continue;
			memcpy(reference_master(reference, u, t), initial[u][t], bytes);
			memset(reference_slot(reference, u, t, 0), 0, bytes);
			memset(reference_slot(reference, u, t, 1), 0, bytes);
		}
}

/* Sixteen lanes, combined in four rounds. */
static double block_squares(const float *values, uint64_t count)
{
	double lanes[16] = { 0.0 };

	for (uint64_t i = 0; i < count; i++)
		lanes[i % 16] += (double)values[i] * (double)values[i];
	for (int width = 8; width > 0; width /= 2)
		for (int lane = 0; lane < width; lane++)
			lanes[lane] += lanes[lane + width];
	return lanes[0];
}

static double sum_squares(const struct training *training)
{
	unsigned ranks = training->configuration->ranks;
	double sum = 0.0;

	for (unsigned u = 0; u < training->model->unit_count; u++)
		for (unsigned rank = 0; training->has_content[u] && rank < ranks; rank++) {
			uint64_t at = model_shard(&training->model->units[u], rank, ranks);
			uint64_t end = model_shard(&training->model->units[u], rank + 1, ranks);

			for (; at < end; at += 65536)
				sum += block_squares(training->sums[u] + at,
						     end - at < 65536 ? end - at : 65536);
		}
	return sum;
}

static void update_tensor(const struct training *training, unsigned unit, unsigned index, unsigned step,
			  float factor)
{
	const struct model_tensor *tensor = &training->model->units[unit].tensors[index];
	const float *sums = training->sums[unit] + model_first(&training->model->units[unit], tensor);
	struct tierd_group groups[MODEL_GROUPS];

	schedule_groups(training->configuration, step, groups);
	const struct tierd_group *group = &groups[tensor->definition.group];
	struct formula formula = {
		.rule = training->configuration->rule,
		.group = group,
		.rate = (double)schedule_rates(training->configuration, step, groups).learning_rate *
			(double)group->learning_rate,
		.factor = factor,
		.update = training->updates[unit],
	};

	formula_apply(&formula, tensor->elements, sums, reference_master(training->reference, unit, index),
		      reference_slot(training->reference, unit, index, 0),
		      reference_slot(training->reference, unit, index, 1));
}

static void update_units(struct training *training, unsigned step, float factor)
{
	for (unsigned u = 0; u < training->model->unit_count; u++) {
		if (!training->has_content[u])
			continue;
		training->updates[u]++;
		for (unsigned t = 0; t < training->model->units[u].tensor_count; t++)
			if (!training->model->units[u].tensors[t].definition.is_frozen)
				update_tensor(training, u, t, step, factor);
	}
}

/* Of the coming step. */
static float move_scale(struct training *training, bool has_overflown)
{
	const struct tierd_job_options *options = &training->options;

	if (!training->configuration->has_dynamic_scale)
		return 1.0f;
	training->good_steps = has_overflown ? 0 : training->good_steps + 1;
	if (has_overflown)
		training->loss_scale = fmaxf(training->loss_scale * options->loss_scale_backoff,
					     options->loss_scale_minimum);
	else if (training->good_steps % options->loss_scale_interval == 0)
		training->loss_scale = training->loss_scale * options->loss_scale_growth;
	return training->loss_scale;
}

static void take_step(struct training *training, unsigned step)
{
	struct reference_step *result = &reference_steps(training->reference)[step];
	struct tierd_rates rates = schedule_rates(training->configuration, step, NULL);
	float loss_scale =
		training->configuration->has_dynamic_scale ? training->loss_scale : rates.loss_scale;
	double scale = (double)rates.gradient_scale / (double)loss_scale;
	double limit = (double)schedule_clip_norm(training->configuration);

	for (unsigned u = 0; u < training->model->unit_count; u++)
		training->has_content[u] =
			sum_unit(training->configuration, training->model, step, u, training->sums[u]);
	double squares = sum_squares(training);

	*result = (struct reference_step){ .norm = sqrt(squares) * fabs(scale),
					   .is_skipped = !isfinite(squares),
					   .loss_scale = loss_scale };
	result->next_loss_scale = move_scale(training, result->is_skipped);
	if (result->is_skipped)
		return;
	result->is_clipped = limit > 0 && result->norm > limit;
	double clip = result->is_clipped ? limit / (result->norm + 1e-6) : 1.0;

	update_units(training, step, (float)(scale * clip));
}

static void snapshot(const struct training *training, unsigned steps)
{
	for (unsigned u = 0; u < training->model->unit_count; u++)
		for (unsigned t = 0; t < training->model->units[u].tensor_count; t++) {
			const struct model_tensor *tensor = &training->model->units[u].tensors[t];

			if (!tensor->definition.is_frozen)
				copy_parameter(reference_master(training->reference, u, t), tensor,
					       reference_parameter(training->reference, u, t, steps));
		}
}

void reference_train(const struct reference *reference, const struct configuration *configuration,
		     float *const initial[MODEL_MAX_UNITS][MODEL_MAX_TENSORS])
{
	struct training training = { .reference = reference,
				     .model = reference->model,
				     .configuration = configuration };

	schedule_options(configuration, &training.options);
	training.loss_scale = training.options.loss_scale;
	for (unsigned u = 0; u < reference->model->unit_count; u++)
		training.sums[u] = sum_buffer(&reference->model->units[u]);
	begin(&training, initial);
	for (unsigned step = 0; step < SCHEDULE_STEPS; step++) {
		take_step(&training, step);
		snapshot(&training, step + 1);
	}
	for (unsigned u = 0; u < reference->model->unit_count; u++)
		free(training.sums[u]);
}
