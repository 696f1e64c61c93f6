#include "model.h"

#include <string.h>

#include "crash_support.h"

const struct model model_base = {
	13,
	{
		{ "embed", "embed", TIERD_BF16, 2, { 701, 431 }, TIERD_INITIALIZE_NORMAL, .alias = "head" },
		{ "layer", "half", TIERD_FP16, 1, { 1203 }, TIERD_INITIALIZE_NORMAL },
		{ "layer", "full", TIERD_FP32, 2, { 33, 7 }, TIERD_INITIALIZE_NORMAL },
		{ "layer", "scale", TIERD_FP32, 0, { 0 }, TIERD_INITIALIZE_NORMAL },
		{ "layer", "none", TIERD_BF16, 2, { 0, 5 }, TIERD_INITIALIZE_NORMAL },
		{ "layer", "odd", TIERD_BF16, 1, { 513 }, TIERD_INITIALIZE_NORMAL },
		{ "middle", "middle", TIERD_BF16, 2, { 100, 64 }, TIERD_INITIALIZE_NORMAL, false, 100, 300 },
		{ "first", "first", TIERD_BF16, 2, { 100, 64 }, TIERD_INITIALIZE_NORMAL, false, 0, 300 },
		{ "last", "last", TIERD_BF16, 2, { 100, 64 }, TIERD_INITIALIZE_NORMAL, false, 200, 300 },
		{ "frozen", "ice", TIERD_BF16, 1, { 3001 }, TIERD_INITIALIZE_NORMAL, true },
		{ "frozen", "frost", TIERD_FP16, 1, { 77 }, TIERD_INITIALIZE_NORMAL, true },
		{ "frozen", "codes", TIERD_BYTES, 1, { MODEL_CODES }, TIERD_INITIALIZE_NONE, true },
		{ "large", "large", TIERD_FP32, 1, { 1200000 }, TIERD_INITIALIZE_NORMAL },
	},
};

uint64_t kind_elements(const struct kind *kind)
{
	uint64_t elements = 1;

	for (uint32_t i = 0; i < kind->dimensions; i++)
		elements *= kind->shape[i];
	return elements;
}

uint64_t kind_bytes(const struct kind *kind)
{
	return kind_elements(kind) * (kind->format == TIERD_FP32 ? 4 : kind->format == TIERD_BYTES ? 1 : 2);
}

static struct tierd_tensor tensor_of(const struct kind *kind)
{
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;

	tensor.name = kind->name;
	tensor.alias = kind->alias;
	tensor.format = kind->format;
	tensor.group = kind->group;
	if (kind->gradient_format)
		tensor.gradient_format = kind->gradient_format;
	tensor.dimensions = kind->dimensions;
	memcpy(tensor.shape, kind->shape, sizeof(kind->shape));
	tensor.is_frozen = kind->is_frozen;
	tensor.slice_of = kind->rows ? "whole" : NULL;
	tensor.slice_row = kind->row;
	tensor.slice_rows = kind->rows;
	tensor.initializer = kind->initializer;
	tensor.b = 1;
	return tensor;
}

unsigned model_unit_tensors(const struct model *model, unsigned first)
{
	unsigned count = 1;

	while (first + count < model->count &&
	       strcmp(model->kinds[first].unit, model->kinds[first + count].unit) == 0)
		count++;
	return count;
}

struct place model_place(const struct model *model, unsigned kind)
{
	struct place place = { 0, 0 };

	for (unsigned i = 1; i <= kind; i++)
		place = strcmp(model->kinds[i].unit, model->kinds[i - 1].unit) == 0
				? (struct place){ place.unit, place.tensor + 1 }
				: (struct place){ place.unit + 1, 0 };
	return place;
}

void model_define(struct tierd_job *job, const struct model *model)
{
	struct tierd_tensor tensors[MODEL_TENSORS];
	uint32_t unit;

	for (unsigned first = 0, count; first < model->count; first += count) {
		count = model_unit_tensors(model, first);
		for (unsigned i = 0; i < count; i++)
			tensors[i] = tensor_of(&model->kinds[first + i]);
		OK(tierd_unit_define(job, model->kinds[first].unit, tensors, count, &unit));
	}
}

void model_write_codes(struct tierd_job *job, const struct model *model)
{
	unsigned char codes[MODEL_CODES];

	for (unsigned i = 0; i < MODEL_CODES; i++)
		codes[i] = (unsigned char)(i * 7 % 251);
	for (unsigned first = 0, unit = 0, count; first < model->count; first += count, unit++) {
		count = model_unit_tensors(model, first);
		for (unsigned i = 0; i < count; i++)
			if (model->kinds[first + i].format == TIERD_BYTES)
				OK(tierd_tensor_write(job, unit, i, 0, MODEL_CODES, codes, false));
	}
}

static void fill_gradients(void *gradients, const struct kind *kind, uint64_t step)
{
	for (uint64_t k = 0; k < kind_elements(kind); k++)
		if (kind->format == TIERD_FP32)
			((float *)gradients)[k] = (float)((k + step) % 17) / 16 - 0.5f;
		else
			((uint16_t *)gradients)[k] = (uint16_t)(0x3000 + (k + step * 5) % 257);
}

static void push_unit(struct tierd_job *job, uint32_t unit, const struct kind *kinds, unsigned count,
		      uint64_t step)
{
	struct tierd_view view;

	if (kinds[0].is_frozen)
		return;
	OK(tierd_gradients(job, unit, &view));
	for (unsigned i = 0; i < count; i++)
		if (!kinds[i].is_frozen)
			fill_gradients(tierd_at(&view, i), &kinds[i], step);
	OK(tierd_push(job, unit));
}

void model_push(struct tierd_job *job, const struct model *model, unsigned units, uint64_t step)
{
	for (unsigned first = 0, unit = 0, count; first < model->count && unit < units;
	     first += count, unit++) {
		count = model_unit_tensors(model, first);
		push_unit(job, unit, &model->kinds[first], count, step);
	}
}
