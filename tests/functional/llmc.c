/* The port of llm.c (examples/llmc) with a tiny model in place of llm.c's own: the same names, two layers of
 * 4 channels, and gradients that are known. What the checkpoint has is what is gathered, and each value goes
 * down by the learning rate. */
#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS 16
#define LAYERS 2
#define ACTIVATIONS 3

/* ---- What the port's lines find in train_gpt2.c ---- */

typedef struct {
	float *tensors[TENSORS];
} ParameterTensors;

typedef struct {
	int unused;
} ActivationTensors;

typedef struct {
	struct {
		int num_layers;
	} config;
	ParameterTensors params, grads;
	size_t param_sizes[TENSORS], act_sizes[1], num_activations;
	float *params_memory, *grads_memory, *grads_acts_memory;
	ActivationTensors grads_acts;
	float mean_loss;
} GPT2;

static float *malloc_and_point_activations(ActivationTensors *activations, size_t *sizes)
{
	return malloc(ACTIVATIONS * sizeof(float));
}

#include "examples/llmc/gpt2_tierd.h"

/* ---- The trainer ---- */

static const size_t sizes[TENSORS] = { 12, 8, 8, 8, 96, 24, 32, 8, 8, 8, 128, 32, 128, 8, 4, 4 };

static bool is_of_layers(int tensor)
{
	return tensor >= 2 && tensor < 14;
}

/* Of an element of the checkpoint, by its place in the file. */
static float value_of(size_t place)
{
	return (float)place / 1024;
}

static FILE *write_checkpoint(void)
{
	FILE *file = tmpfile();
	size_t count = 0;
	int header[256] = { 0 };

	assert(file);
	fwrite(header, sizeof(int), 256, file);
	for (int i = 0; i < TENSORS; i++)
		count += sizes[i];
	for (size_t place = 0; place < count; place++) {
		float value = value_of(place);

		fwrite(&value, sizeof(value), 1, file);
	}
	return file;
}

/* All elements of a unit's tensors are those of the checkpoint, less so much. */
static void check_unit(GPT2 *model, uint32_t unit, double less)
{
	size_t place = 0;
	bool is_layer = unit >= GPT2_LAYER && unit < gpt2_last();

	gpt2_gather(model, unit, &model->params);
	for (int tensor = 0; tensor < TENSORS; place += sizes[tensor++]) {
		size_t count = sizes[tensor] / (is_of_layers(tensor) ? LAYERS : 1);
		size_t first = is_layer ? (unit - GPT2_LAYER) * count : 0;

		if (tensor < gpt2_first_tensor(unit) ||
		    tensor >= gpt2_first_tensor(unit) + gpt2_tensor_count(unit))
			continue;
		for (size_t i = first; i < first + count; i++)
			assert(fabs(model->params.tensors[tensor][i] - value_of(place + i) + less) < 1e-5);
	}
	gpt2_release(unit);
}

static void check(GPT2 *model, double less)
{
	for (uint32_t unit = 0; unit < gpt2.units; unit++)
		check_unit(model, unit, less);
}

static void push_ones(GPT2 *model, uint32_t unit)
{
	bool is_layer = unit >= GPT2_LAYER && unit < gpt2_last();

	gpt2_gradients(model, unit, &model->grads);
	for (int i = 0; i < gpt2_tensor_count(unit); i++) {
		int tensor = gpt2_first_tensor(unit) + i;
		size_t count = sizes[tensor] / (is_layer ? LAYERS : 1);
		size_t first = is_layer ? (unit - GPT2_LAYER) * count : 0;

		for (size_t element = first; element < first + count; element++)
			model->grads.tensors[tensor][element] += 1.0f;
	}
	gpt2_push(unit);
}

int main(void)
{
	GPT2 model = { .config = { LAYERS } };

	memcpy(model.param_sizes, sizes, sizeof(sizes));
	gpt2_open(&model, write_checkpoint());
	check(&model, 0.0);
	model.num_activations = ACTIVATIONS;
	for (int step = 1; step <= 2; step++) {
		gpt2_announce(&model);
		for (uint32_t unit = gpt2.units; unit-- > 0;)
			push_ones(&model, unit);
		gpt2_step();
		/* AdamW, of gradients that are all alike: the first steps are as long as the learning rate.
		 */
		check(&model, step * (double)GPT2_LEARNING_RATE);
	}
	gpt2_close();
	free(model.params_memory);
	free(model.grads_memory);
	free(model.grads_acts_memory);
	return 0;
}
