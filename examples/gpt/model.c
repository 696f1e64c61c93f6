#include "model.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "random.h"

/* Adds the unit's next tensor; columns 0: a vector. */
static struct tensor *add_tensor(const struct model *model, struct unit *unit, const char *name,
				 uint64_t rows, uint64_t columns)
{
	struct tensor *tensor = &unit->tensors[unit->tensor_count++];

	size_t prefix = strlen(unit->name);

	memcpy(tensor->name, unit->name, prefix);
	snprintf(tensor->name + prefix, sizeof(tensor->name) - prefix, ".%s", name);
	tensor->format = model->shape.format;
	tensor->group = columns > 0 ? GROUP_DECAYS : GROUP_CONSTANT;
	tensor->dimensions = columns > 0 ? 2 : 1;
	tensor->shape[0] = rows;
	tensor->shape[1] = columns;
	tensor->deviation = columns > 0 ? 0.02f : 0.0f;
	return tensor;
}

static void add_norm(const struct model *model, struct unit *unit, const char *weight, const char *bias)
{
	struct tensor *tensor = add_tensor(model, unit, weight, model->shape.width, 0);

	tensor->format = NUMBER_FP32;
	tensor->mean = 1.0f;
	tensor = add_tensor(model, unit, bias, model->shape.width, 0);
	tensor->format = NUMBER_FP32;
}

static void define_embedding(const struct model *model, struct unit *unit)
{
	snprintf(unit->name, sizeof(unit->name), "embedding");
	add_tensor(model, unit, "token", MODEL_VOCABULARY, model->shape.width);
	add_tensor(model, unit, "position", model->shape.context, model->shape.width)->deviation = 0.01f;
}

static void define_layer(const struct model *model, struct unit *unit, unsigned layer)
{
	uint64_t width = model->shape.width;
	/* Every layer adds twice to the residual stream: so its variance does not grow with the layers. */
	float residual = 0.02f / sqrtf(2.0f * (float)model->shape.layers);

	snprintf(unit->name, sizeof(unit->name), "layer.%u", layer);
	add_norm(model, unit, "norm1.weight", "norm1.bias");
	add_tensor(model, unit, "qkv.weight", 3 * width, width);
	add_tensor(model, unit, "qkv.bias", 3 * width, 0);
	add_tensor(model, unit, "projection.weight", width, width)->deviation = residual;
	add_tensor(model, unit, "projection.bias", width, 0);
	add_norm(model, unit, "norm2.weight", "norm2.bias");
	add_tensor(model, unit, "up.weight", 4 * width, width);
	add_tensor(model, unit, "up.bias", 4 * width, 0);
	add_tensor(model, unit, "down.weight", width, 4 * width)->deviation = residual;
	add_tensor(model, unit, "down.bias", width, 0);
}

static void define_final(const struct model *model, struct unit *unit)
{
	snprintf(unit->name, sizeof(unit->name), "final");
	add_norm(model, unit, "norm.weight", "norm.bias");
}

int model_new(const struct model_shape *shape, uint64_t seed, struct model **ret_model)
{
	struct model *model;

	if (shape->layers == 0 || shape->layers > MODEL_MAX_LAYERS || shape->context == 0 ||
	    shape->width == 0 || shape->width % 16 != 0 || shape->heads == 0 ||
	    shape->width % shape->heads != 0)
		return -EINVAL;
	model = calloc(1, sizeof(*model) + (shape->layers + 2) * sizeof(model->units[0]));
	if (!model)
		return -ENOMEM;
	model->shape = *shape;
	model->seed = seed;
	model->unit_count = (unsigned)shape->layers + 2;
	define_embedding(model, &model->units[model_embedding(model)]);
	for (unsigned layer = 0; layer < shape->layers; layer++)
		define_layer(model, &model->units[model_layer(model, layer)], layer);
	define_final(model, &model->units[model_final(model)]);
	*ret_model = model;
	return 0;
}

struct model *model_free(struct model *model)
{
	free(model);
	return NULL;
}

uint64_t tensor_elements(const struct tensor *tensor)
{
	return tensor->dimensions == 2 ? tensor->shape[0] * tensor->shape[1] : tensor->shape[0];
}

uint64_t model_parameters(const struct model *model)
{
	uint64_t elements = 0;

	for (unsigned unit = 0; unit < model->unit_count; unit++) {
		for (unsigned i = 0; i < model->units[unit].tensor_count; i++)
			elements += tensor_elements(&model->units[unit].tensors[i]);
	}
	return elements;
}

void model_initial_values(const struct model *model, unsigned unit, unsigned tensor, uint64_t first,
			  size_t count, float *ret_values)
{
	const struct tensor *description = &model->units[unit].tensors[tensor];
	uint64_t stream = random_at(model->seed, (uint64_t)unit << 32 | tensor);

	for (size_t i = 0; i < count; i++) {
		ret_values[i] = description->mean;
		if (description->deviation > 0.0f)
			ret_values[i] += description->deviation * random_normal(stream, first + i);
	}
}
