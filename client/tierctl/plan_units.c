#include "client/tierctl/plan_units.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"
#include "proto/unit_layout.h"

/* ---- As they go over the wire ---- */

/* The list has room for one more; NULL: out of memory, and it is as it was. */
static void *grow(void *list, size_t count)
{
	bool is_full = (count & (count - 1)) == 0;

	return is_full ? realloc(list, (count ? 2 * count : 1) * sizeof(void *)) : list;
}

int plan_units_add(Tierd__Wire__PlanRequest *request, const char *name)
{
	Tierd__Wire__UnitDefine **units = grow(request->units, request->n_units), *unit;

	if (!units)
		return -ENOMEM;
	request->units = units;
	unit = malloc(sizeof(*unit));
	if (!unit)
		return -ENOMEM;
	tierd__wire__unit_define__init(unit);
	units[request->n_units++] = unit;
	unit->name = strdup(name);
	return unit->name ? 0 : -ENOMEM;
}

/* An empty text stays the message's default. */
static int set_text(char **place, const char *text)
{
	if (!text || !*text)
		return 0;
	*place = strdup(text);
	return *place ? 0 : -ENOMEM;
}

static int set_shape(Tierd__Wire__Tensor *wire, const struct tierd_tensor *tensor)
{
	if (tensor->dimensions == 0)
		return 0;
	wire->shape = malloc(tensor->dimensions * sizeof(uint64_t));
	if (!wire->shape)
		return -ENOMEM;
	memcpy(wire->shape, tensor->shape, tensor->dimensions * sizeof(uint64_t));
	wire->n_shape = tensor->dimensions;
	return 0;
}

int plan_units_add_tensor(Tierd__Wire__PlanRequest *request, const struct tierd_tensor *tensor)
{
	Tierd__Wire__UnitDefine *unit = request->units[request->n_units - 1];
	Tierd__Wire__Tensor **tensors = grow(unit->tensors, unit->n_tensors), *wire;
	int r;

	if (!tensors)
		return -ENOMEM;
	unit->tensors = tensors;
	wire = malloc(sizeof(*wire));
	if (!wire)
		return -ENOMEM;
	tierd__wire__tensor__init(wire);
	tensors[unit->n_tensors++] = wire;
	wire->format = tensor->format;
	wire->group = tensor->group;
	wire->is_frozen = tensor->is_frozen;
	wire->gradient_format = tensor->gradient_format;
	wire->slice_row = tensor->slice_row;
	wire->slice_rows = tensor->slice_rows;
	r = set_text(&wire->name, tensor->name);
	if (r == 0)
		r = set_text(&wire->alias, tensor->alias);
	if (r == 0)
		r = set_text(&wire->slice_of, tensor->slice_of);
	if (r == 0)
		r = set_text(&wire->dtype, tensor->dtype);
	return r < 0 ? r : set_shape(wire, tensor);
}

/* columns 0: a vector. */
static int add(Tierd__Wire__PlanRequest *request, const char *name, uint32_t format, uint64_t rows,
	       uint64_t columns)
{
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	char full[2 * TIERD_MAX_NAME];

	if (rows == 0)
		return 0;
	snprintf(full, sizeof(full), "%s.%s", request->units[request->n_units - 1]->name, name);
	tensor.name = full;
	tensor.format = format;
	tensor.dimensions = columns > 0 ? 2 : 1;
	tensor.shape[0] = rows;
	tensor.shape[1] = columns;
	tensor.is_frozen = format == TIERD_BYTES;
	return plan_units_add_tensor(request, &tensor);
}

/* ---- Of a size alone ---- */

/* Divides evenly: the results differ by one at most. */
static uint64_t part_of(uint64_t whole, uint64_t parts, uint64_t index)
{
	return whole / parts + (index < whole % parts);
}

static int add_layer(Tierd__Wire__PlanRequest *request, uint64_t index)
{
	char name[40];

	snprintf(name, sizeof(name), "layer.%llu", (unsigned long long)index);
	return plan_units_add(request, name);
}

/* Two of that do not fit in a pack. */
#define MEAN_ELEMENTS ((UINT64_C(1) << 19) + 1)
#define MANY_LAYERS 128
#define FEW_LAYERS 4

static uint64_t root(uint64_t number)
{
	uint64_t root = 0;

	for (uint64_t bit = UINT64_C(1) << 31; bit > 0; bit >>= 1)
		if ((root | bit) * (root | bit) <= number)
			root |= bit;
	return root;
}

/* As a transformer's: a layer of width w has about 12 w^2 elements, and its norms are in fp32. */
static int add_mixed_tensors(Tierd__Wire__PlanRequest *request, uint32_t format, uint64_t elements)
{
	uint64_t width = root(elements / 12), vectors = 8 * width;
	char name[40];
	int r = 0;

	for (unsigned i = 0; i < 4 && r == 0; i++) {
		snprintf(name, sizeof(name), "some_module.its_norm.weight%u", i);
		r = add(request, name, TIERD_FP32, width, 0);
		snprintf(name, sizeof(name), "some_module.its_linear.bias%u", i);
		if (r == 0)
			r = add(request, name, format, width, 0);
		snprintf(name, sizeof(name), "some_module.its_linear.weight%u", i);
		if (r == 0)
			r = add(request, name, format, part_of(elements - vectors, 4, i), 0);
	}
	return r;
}

/* A first unit, 0: none, and layers of so many elements each; the last one has the rest. */
struct cut {
	uint64_t first, layer;
	bool is_mixed;
};

static int add_cut_layer(Tierd__Wire__PlanRequest *request, const struct plan_size *size,
			 const struct cut *cut, uint64_t layers, uint64_t index)
{
	uint64_t rest = size->parameters - cut->first - index * cut->layer;
	uint64_t elements = rest < cut->layer ? rest : cut->layer;
	int r = add_layer(request, index);

	if (r == 0)
		r = cut->is_mixed ? add_mixed_tensors(request, size->format, elements)
				  : add(request, "weight", size->format, elements, 0);
	return r < 0 ? r : add(request, "frozen", TIERD_BYTES, part_of(size->frozen_bytes, layers, index), 0);
}

static int add_cut(Tierd__Wire__PlanRequest *request, const struct plan_size *size, const struct cut *cut)
{
	uint64_t layers = size_divide_up(size->parameters - cut->first, cut->layer);
	int r = 0;

	if (cut->first > 0)
		r = plan_units_add(request, "embedding");
	if (r == 0)
		r = add(request, "some_module.weight", size->format, cut->first, 0);
	if (r == 0 && layers == 0)
		r = add(request, "frozen", TIERD_BYTES, size->frozen_bytes, 0);
	for (uint64_t i = 0; i < layers && r == 0; i++)
		r = add_cut_layer(request, size, cut, layers, i);
	if (r < 0 || !cut->is_mixed)
		return r;
	r = plan_units_add(request, "final");
	return r < 0 ? r : add(request, "some_norm.weight", TIERD_FP32, root(size->parameters / 1024) + 1, 0);
}

/* The embedding of 2^18 words in a transformer that is 128 times as wide as it is deep; at most half of all.
 */
static uint64_t embedding_of(uint64_t parameters)
{
	uint64_t words = (uint64_t)(262144 * cbrt((double)parameters * 128 / 12));
	uint64_t half = size_divide_up(parameters, 2);

	return words < half ? words : half;
}

static uint64_t least_of(uint64_t one, uint64_t other)
{
	return one < other ? one : other;
}

static uint64_t most_of(uint64_t one, uint64_t other)
{
	return one > other ? one : other;
}

/* The size of a layer if there are as many layers as possible, each larger than half a pack and at most as
 * large as the largest unit. */
static uint64_t mean_layer(uint64_t elements, uint64_t largest)
{
	uint64_t layers = least_of(most_of(elements / MEAN_ELEMENTS, 1), MANY_LAYERS);

	return most_of(least_of(size_divide_up(elements, layers), largest), 1);
}

int plan_units_cut(Tierd__Wire__PlanRequest *request, const struct plan_size *size, unsigned number)
{
	uint64_t all = size->parameters;
	uint64_t largest = size->largest_unit ? size->largest_unit : embedding_of(all);
	uint64_t small = least_of(all / 8, largest);
	const struct cut cuts[PLAN_CUTS] = {
		{ 0, size->largest_unit ? largest : size_divide_up(all, FEW_LAYERS), false },
		{ 0, least_of(largest, size_divide_up(all, MANY_LAYERS)), false },
		{ largest, mean_layer(all - largest, largest), true },
		{ small, mean_layer(all - small, largest), true },
		{ small, largest, true },
	};

	return add_cut(request, size, &cuts[number]);
}

/* ---- Of the example gpt: examples/gpt/model.c ---- */

#define GPT_VOCABULARY 256

static int add_norm(Tierd__Wire__PlanRequest *request, const char *weight, const char *bias, uint64_t width)
{
	int r = add(request, weight, TIERD_FP32, width, 0);

	return r < 0 ? r : add(request, bias, TIERD_FP32, width, 0);
}

/* A matrix, and a bias for each of its rows. */
static int add_linear(Tierd__Wire__PlanRequest *request, const struct plan_gpt *gpt, const char *name,
		      uint64_t rows, uint64_t columns)
{
	char full[24];
	int r;

	snprintf(full, sizeof(full), "%s.weight", name);
	r = add(request, full, gpt->format, rows, columns);
	snprintf(full, sizeof(full), "%s.bias", name);
	return r < 0 ? r : add(request, full, gpt->format, rows, 0);
}

static int add_gpt_layer(Tierd__Wire__PlanRequest *request, const struct plan_gpt *gpt, uint64_t index)
{
	uint64_t width = gpt->width;
	int r = add_layer(request, index);

	if (r == 0)
		r = add_norm(request, "norm1.weight", "norm1.bias", width);
	if (r == 0)
		r = add_linear(request, gpt, "qkv", 3 * width, width);
	if (r == 0)
		r = add_linear(request, gpt, "projection", width, width);
	if (r == 0)
		r = add_norm(request, "norm2.weight", "norm2.bias", width);
	if (r == 0)
		r = add_linear(request, gpt, "up", 4 * width, width);
	return r < 0 ? r : add_linear(request, gpt, "down", width, 4 * width);
}

int plan_units_of_gpt(Tierd__Wire__PlanRequest *request, const struct plan_gpt *gpt)
{
	int r = plan_units_add(request, "embedding");

	if (r == 0)
		r = add(request, "token", gpt->format, GPT_VOCABULARY, gpt->width);
	if (r == 0)
		r = add(request, "position", gpt->format, gpt->context, gpt->width);
	for (uint64_t i = 0; i < gpt->layers && r == 0; i++)
		r = add_gpt_layer(request, gpt, i);
	if (r == 0)
		r = plan_units_add(request, "final");
	return r < 0 ? r : add_norm(request, "norm.weight", "norm.bias", gpt->width);
}

/* ---- For the formulas ---- */

static uint64_t bytes_in(const Tierd__Wire__Tensor *tensor, uint32_t format)
{
	uint64_t elements;

	if (unit_layout_elements(tensor->shape, tensor->n_shape, &elements) < 0)
		return 0;
	return elements * (format == FORMAT_FP32 ? 4 : format == FORMAT_BYTES ? 1 : 2);
}

uint64_t plan_units_bytes(const Tierd__Wire__Tensor *tensor)
{
	return bytes_in(tensor, tensor->format);
}

uint64_t plan_units_gradient_bytes(const Tierd__Wire__Tensor *tensor)
{
	if (tensor->is_frozen)
		return 0;
	return bytes_in(tensor, tensor->gradient_format ? tensor->gradient_format : tensor->format);
}

static void count_tensor(const Tierd__Wire__Tensor *tensor, const Tierd__Wire__JobOpen *job,
			 struct plan_model *model)
{
	static const enum plan_format formats[] = {
		[FORMAT_FP32] = PLAN_FP32, [FORMAT_BF16] = PLAN_BF16, [FORMAT_FP16] = PLAN_FP16
	};
	uint64_t elements;

	/* The planner says what is wrong. */
	if (unit_layout_elements(tensor->shape, tensor->n_shape, &elements) < 0)
		return;
	if (tensor->is_frozen)
		model->frozen_bytes += plan_units_bytes(tensor);
	else if (tensor->format >= FORMAT_FP32 && tensor->format <= FORMAT_FP16 &&
		 tensor->group < job->n_groups)
		model->elements[formats[tensor->format]][job->groups[tensor->group]->moments] += elements;
}

void plan_units_count(const Tierd__Wire__PlanRequest *request, const Tierd__Wire__JobOpen *job,
		      struct plan_model *model)
{
	memset(model->elements, 0, sizeof(model->elements));
	model->frozen_bytes = 0;
	for (size_t i = 0; i < request->n_units; i++)
		for (size_t k = 0; k < request->units[i]->n_tensors; k++)
			count_tensor(request->units[i]->tensors[k], job, model);
}
