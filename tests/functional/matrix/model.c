#include "model.h"

#include <stdio.h>
#include <string.h>

#include "bits.h"
#include "philox.h"

static struct model_unit *add_unit(struct model *model, const char *name, unsigned number)
{
	struct model_unit *unit = &model->units[model->unit_count++];

	char text[sizeof(unit->name)];

	snprintf(text, sizeof(text), name, number);
	memcpy(unit->name, text, sizeof(text));
	return unit;
}

/* Completed by the caller: group, initializer, frozen. */
static struct tierd_tensor *add_tensor(struct model_unit *unit, const char *name, uint32_t format,
				       uint32_t dimensions, uint64_t rows, uint64_t columns)
{
	struct model_tensor *tensor = &unit->tensors[unit->tensor_count++];

	char text[sizeof(tensor->name)];

	snprintf(text, sizeof(text), "%.20s.%.10s", unit->name, name);
	memcpy(tensor->name, text, sizeof(text));
	tensor->definition = (struct tierd_tensor)TIERD_TENSOR_INIT;
	tensor->definition.name = tensor->name;
	tensor->definition.format = format;
	tensor->definition.dimensions = dimensions;
	tensor->definition.shape[0] = dimensions > 0 ? rows : 0;
	tensor->definition.shape[1] = dimensions > 1 ? columns : 0;
	return &tensor->definition;
}

static void initialize(struct tierd_tensor *tensor, uint32_t group, uint32_t initializer)
{
	tensor->group = group;
	tensor->initializer = initializer;
	tensor->a = initializer == TIERD_INITIALIZE_UNIFORM ? -0.75 : 0.01;
	tensor->b = initializer == TIERD_INITIALIZE_UNIFORM ? 1.5 : 0.37;
}

static void add_embedding(struct model *model, uint32_t format)
{
	struct model_unit *unit = add_unit(model, "embedding", 0);
	struct tierd_tensor *tensor = add_tensor(unit, "weight", format, 2, 977, 33);

	tensor->alias = "output.weight";
	initialize(add_tensor(unit, "position", format, 2, 64, 33), 1, TIERD_INITIALIZE_NORMAL);
}

static void add_tiny(struct model *model, uint32_t format, unsigned number)
{
	struct model_unit *unit = add_unit(model, "tiny.%u", number);

	initialize(add_tensor(unit, "weight", format, 1, number * 37 % 600 + 1, 0), number % MODEL_GROUPS,
		   number % 5);
	if (number % 7 == 3)
		add_tensor(unit, "empty", format, 2, 0, 5);
	if (number % 3 == 0)
		initialize(add_tensor(unit, "scalar", TIERD_FP32, 0, 0, 0), (number + 1) % MODEL_GROUPS,
			   TIERD_INITIALIZE_NONE);
	if (number % 5 == 4)
		add_tensor(unit, "table", TIERD_FP32, 1, number, 0)->is_frozen = true;
}

static void add_frozen(struct model *model)
{
	struct model_unit *unit = add_unit(model, "frozen", 0);

	add_tensor(unit, "written", TIERD_BF16, 1, 1000, 0)->is_frozen = true;
	add_tensor(unit, "half", TIERD_FP16, 1, 777, 0)->is_frozen = true;
	add_tensor(unit, "bytes", TIERD_BYTES, 2, 3, 433)->is_frozen = true;
	add_tensor(unit, "byte", TIERD_BYTES, 0, 0, 0)->is_frozen = true;
	struct tierd_tensor *tensor = add_tensor(unit, "filled", TIERD_FP32, 2, 3, 5);

	initialize(tensor, 0, TIERD_INITIALIZE_NORMAL);
	tensor->is_frozen = true;
	tensor = add_tensor(unit, "half.filled", TIERD_FP16, 1, 300, 0);
	initialize(tensor, 0, TIERD_INITIALIZE_NORMAL);
	tensor->is_frozen = true;
}

static void add_slice(struct model *model, uint32_t format, unsigned number)
{
	struct model_unit *unit = add_unit(model, "slice.%u", number);
	struct tierd_tensor *tensor = add_tensor(unit, "rows", format, 2, number == 0 ? 7 : 10, 101);

	initialize(tensor, 3, TIERD_INITIALIZE_NORMAL);
	tensor->slice_of = "sliced";
	tensor->slice_row = number == 0 ? 0 : 7;
	tensor->slice_rows = 17;
}

/* Frozen values make it a pack of its own, as large as the other blocks, at little cost. One of them has an
 * adapter's shape: a large weight of 4-bit numbers beside what is trained. */
static void add_block(struct model *model, uint32_t format, unsigned number)
{
	struct model_unit *unit = add_unit(model, "block.%u", number);
	struct tierd_tensor *tensor;

	initialize(add_tensor(unit, "norm", TIERD_FP32, 1, 97, 0), 1, TIERD_INITIALIZE_ONES);
	add_tensor(unit, "weight", format, 2, 131, 97);
	initialize(add_tensor(unit, "bias", TIERD_FP32, 1, 97, 0), 2, TIERD_INITIALIZE_ZEROS);
	initialize(add_tensor(unit, "more", format, 2, 5, 97), 3, TIERD_INITIALIZE_UNIFORM);
	tensor = add_tensor(unit, "constants", TIERD_BF16, 1, 530001, 0);
	initialize(tensor, 0, number % 2 ? TIERD_INITIALIZE_UNIFORM : TIERD_INITIALIZE_ONES);
	tensor->is_frozen = true;
	if (number == 2)
		add_tensor(unit, "packed", TIERD_BYTES, 2, 301, 151)->is_frozen = true;
}

/* More than 2^20 elements: a pack by itself, several chunks of an update. */
static void add_wide(struct model *model, uint32_t format, unsigned number)
{
	struct model_unit *unit = add_unit(model, "wide.%u", number);

	initialize(add_tensor(unit, "first", format, 1, 400003, 0), number % MODEL_GROUPS,
		   TIERD_INITIALIZE_UNIFORM);
	initialize(add_tensor(unit, "second", format, 2, 700 + number, 571), (number + 1) % MODEL_GROUPS,
		   TIERD_INITIALIZE_NONE);
	initialize(add_tensor(unit, "third", format, 1, 397001, 0), (number + 2) % MODEL_GROUPS,
		   TIERD_INITIALIZE_NORMAL);
	initialize(add_tensor(unit, "norm", TIERD_FP32, 1, 1021, 0), 1, TIERD_INITIALIZE_ONES);
}

static uint64_t align(uint64_t value, uint64_t unit)
{
	return (value + unit - 1) / unit * unit;
}

static enum model_section section_of(const struct tierd_tensor *definition)
{
	static const enum model_section sections[] = {
		[TIERD_BF16] = MODEL_BF16, [TIERD_FP16] = MODEL_FP16, [TIERD_FP32] = MODEL_FP32
	};
	static const enum model_section frozen[] = { [TIERD_BF16] = MODEL_FROZEN_BF16,
						     [TIERD_FP16] = MODEL_FROZEN_FP16,
						     [TIERD_FP32] = MODEL_FROZEN_FP32,
						     [TIERD_BYTES] = MODEL_FROZEN_BYTES };

	return (definition->is_frozen ? frozen : sections)[definition->format];
}

static void place(struct model_unit *unit, struct model_tensor *tensor)
{
	const struct tierd_tensor *definition = &tensor->definition;

	tensor->elements = 1;
	for (uint32_t i = 0; i < definition->dimensions; i++)
		tensor->elements *= definition->shape[i];
	tensor->section = section_of(definition);
	tensor->first = align(unit->section[tensor->section], 256 / model_element_bytes(tensor));
	unit->section[tensor->section] = tensor->first + tensor->elements;
}

static void finish(struct model *model)
{
	for (unsigned u = 0; u < model->unit_count; u++) {
		struct model_unit *unit = &model->units[u];

		for (unsigned t = 0; t < unit->tensor_count; t++) {
			place(unit, &unit->tensors[t]);
			model->parameters += unit->tensors[t].elements;
		}
		for (int section = 0; section < MODEL_SECTIONS; section++)
			unit->section[section] = align(unit->section[section], 256);
	}
}

/* Of each third unit. */
static void widen_gradients(struct model *model)
{
	for (unsigned u = 1; u < model->unit_count; u += 3)
		for (unsigned t = 0; t < model->units[u].tensor_count; t++)
			if (!model->units[u].tensors[t].definition.is_frozen)
				model->units[u].tensors[t].definition.gradient_format = TIERD_FP32;
}

void model_make(struct model *model, uint32_t weight_format, bool has_wide)
{
	*model = (struct model){ .seed = 0x0123456789abcdef };
	add_embedding(model, weight_format);
	for (unsigned i = 0; i < 15; i++)
		add_tiny(model, weight_format, i);
	add_slice(model, weight_format, 0);
	for (unsigned i = 0; i < 3; i++)
		add_block(model, weight_format, i);
	add_frozen(model);
	add_slice(model, weight_format, 1);
	for (unsigned i = 15; i < 30; i++)
		add_tiny(model, weight_format, i);
	add_tensor(add_unit(model, "empty", 0), "none", weight_format, 2, 3, 0);
	for (unsigned i = 3; i < 6; i++)
		add_block(model, weight_format, i);
	initialize(add_tensor(add_unit(model, "middle", 0), "weight", weight_format, 1, 150011, 0), 1,
		   TIERD_INITIALIZE_NONE);
	widen_gradients(model);
	for (unsigned i = 0; has_wide && i < 4; i++)
		add_wide(model, weight_format, i);
	finish(model);
}

/* ---- Values ---- */

uint64_t model_piece_elements(const struct model_tensor *tensor)
{
	return tensor->elements < 40000 ? 4999 : tensor->elements / 5 + 3;
}

float model_written_value(uint32_t unit, uint32_t tensor, uint64_t element)
{
	return (float)(int32_t)BITS_HASH(unit, tensor, (uint32_t)element) * 0x1p-34f;
}

static void fill_written(const struct model_tensor *tensor, uint32_t unit, uint32_t index, float *values)
{
	for (uint64_t i = 0; i < tensor->elements; i++) {
		float value = model_written_value(unit, index, i);

		if (tensor->definition.format != TIERD_FP32 &&
		    !model_piece_is_master(tensor, i / model_piece_elements(tensor)))
			value = bits_widen(tensor->definition.format,
					   bits_narrow(tensor->definition.format, value));
		values[i] = value;
	}
}

static void fill_random(const struct model *model, const struct model_tensor *tensor, float *values)
{
	const struct tierd_tensor *definition = &tensor->definition;
	bool is_normal = definition->initializer == TIERD_INITIALIZE_NORMAL;
	const char *name = definition->slice_of ? definition->slice_of : tensor->name;
	uint64_t first = definition->slice_of ? definition->slice_row * definition->shape[1] : 0;
	struct philox philox;

	philox_init(&philox, model->seed, name);
	for (uint64_t i = 0; i < tensor->elements; i++)
		values[i] = is_normal ? philox_normal(&philox, first + i, definition->a, definition->b)
				      : philox_uniform(&philox, first + i, definition->a, definition->b);
}

void model_initial_values(const struct model *model, uint32_t unit, uint32_t index, float *values)
{
	const struct model_tensor *tensor = &model->units[unit].tensors[index];

	switch (tensor->definition.initializer) {
	case TIERD_INITIALIZE_NONE:
		fill_written(tensor, unit, index, values);
		return;
	case TIERD_INITIALIZE_NORMAL:
	case TIERD_INITIALIZE_UNIFORM:
		fill_random(model, tensor, values);
		return;
	default:
		for (uint64_t i = 0; i < tensor->elements; i++)
			values[i] = tensor->definition.initializer == TIERD_INITIALIZE_ONES ? 1.0f : 0.0f;
	}
}
