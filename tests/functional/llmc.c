/* The port of llm.c (examples/llmc) with a tiny model in place of llm.c's own: the same names, two layers of
 * 4 channels, 9 tokens. What the checkpoint has is what is gathered; the embedding's slices give what the
 * whole one gives; and each value goes down by the learning rate. */
#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 2, WIDTH = 4, VOCABULARY = 9, LENGTH = 2, BATCH = 2, TOKENS = BATCH * LENGTH };
#define TENSORS 16
#define ACTIVATIONS 3

/* ---- What the port's lines find in train_gpt2.c ---- */

typedef struct {
	float *wte, *wpe, *others[TENSORS - 2];
} ParameterTensors;

typedef struct {
	int unused;
} ActivationTensors;

typedef struct {
	struct {
		int vocab_size, num_layers, channels;
	} config;
	ParameterTensors params, grads;
	size_t param_sizes[TENSORS], act_sizes[1], num_activations;
	float *params_memory, *grads_memory, *grads_acts_memory;
	ActivationTensors grads_acts;
	int batch_size, seq_len, *inputs;
	float mean_loss;
} GPT2;

static float *malloc_and_point_activations(ActivationTensors *activations, size_t *sizes)
{
	return malloc(ACTIVATIONS * sizeof(float));
}

static void matmul_forward(float *out, const float *in, const float *weights, const float *bias, int batch,
			   int length, int columns, int rows)
{
	assert(!bias);
	for (int i = 0; i < batch * length; i++)
		for (int o = 0; o < rows; o++) {
			out[i * rows + o] = 0.0f;
			for (int c = 0; c < columns; c++)
				out[i * rows + o] += in[i * columns + c] * weights[o * columns + c];
		}
}

#include "examples/llmc/gpt2_tierd.h"

/* ---- The checkpoint ---- */

static const size_t sizes[TENSORS] = {
	VOCABULARY * WIDTH, LENGTH *WIDTH, 8, 8, 96, 24, 32, 8, 8, 8, 128, 32, 128, 8, 4, 4
};

/* Of an element, by its place in the file. */
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

/* ---- The trainer ---- */

/* All elements of a unit's tensors are those of the checkpoint, less so much. */
static void check_unit(GPT2 *model, uint32_t unit, double less)
{
	int first = gpt2_first_tensor(unit);
	size_t place = 0;

	gpt2_gather(model, unit, &model->params);
	for (int tensor = 0; tensor < first + gpt2_tensor_count(unit); place += sizes[tensor++]) {
		size_t count, begin = gpt2_begin(model, unit, tensor, &count);

		for (size_t i = begin; i < begin + count && tensor >= first; i++)
			assert(fabs(((float **)&model->params)[tensor][i] - value_of(place + i) + less) <
			       1e-5);
	}
	gpt2_release(unit);
}

static void check(GPT2 *model, double less)
{
	for (uint32_t unit = 0; unit < gpt2.units; unit++)
		check_unit(model, unit, less);
}

static double token_value(int token, int column)
{
	return value_of((size_t)(token * WIDTH + column));
}

static void check_embedding(GPT2 *model)
{
	float encoded[TOKENS * WIDTH], logits[TOKENS * VOCABULARY], lnf[TOKENS * WIDTH];

	for (int i = 0; i < TOKENS * WIDTH; i++)
		lnf[i] = (float)(i % 5);
	gpt2_encode(model, &model->params, model->inputs, encoded);
	gpt2_head(model, &model->params, logits, lnf);
	for (int i = 0; i < TOKENS; i++)
		for (int c = 0; c < WIDTH; c++)
			assert(fabs(encoded[i * WIDTH + c] - token_value(model->inputs[i], c) -
				    token_value(VOCABULARY + i % LENGTH, c)) < 1e-6);
	for (int i = 0; i < TOKENS; i++)
		for (int o = 0; o < VOCABULARY; o++) {
			double expected = 0.0;

			for (int c = 0; c < WIDTH; c++)
				expected += lnf[i * WIDTH + c] * token_value(o, c);
			assert(fabs(logits[i * VOCABULARY + o] - expected) < 1e-5);
		}
}

static void push_ones(GPT2 *model, uint32_t unit)
{
	gpt2_gradients(model, unit, &model->grads);
	for (int i = 0; i < gpt2_tensor_count(unit); i++) {
		int tensor = gpt2_first_tensor(unit) + i;
		size_t count, begin = gpt2_begin(model, unit, tensor, &count);

		for (size_t element = begin; element < begin + count; element++)
			((float **)&model->grads)[tensor][element] += 1.0f;
	}
	gpt2_push(unit);
}

/* Gradients that are all positive, and so, in AdamW's first steps, all alike. */
static void step(GPT2 *model)
{
	float ones[TOKENS * VOCABULARY], dlnf[TOKENS * WIDTH] = { 0.0f };

	for (int i = 0; i < TOKENS * VOCABULARY; i++)
		ones[i] = 1.0f;
	gpt2_announce(model);
	gpt2_head_backward(model, &model->params, dlnf, ones);
	for (int i = 0; i < TOKENS * WIDTH; i++) {
		double expected = 0.0;

		for (int o = 0; o < VOCABULARY; o++)
			expected += token_value(o, i % WIDTH);
		assert(fabs(dlnf[i] - expected) < 1e-2);
	}
	for (uint32_t unit = gpt2.units; unit-- > GPT2_LAYER;)
		push_ones(model, unit);
	gpt2_embeddings_backward(model, &model->grads, ones, ones, ones);
	gpt2_step();
}

int main(void)
{
	int inputs[TOKENS] = { 0, 8, 3, 8 };
	GPT2 model = { .config = { VOCABULARY, LAYERS, WIDTH } };

	memcpy(model.param_sizes, sizes, sizeof(sizes));
	gpt2_open(&model, write_checkpoint());
	model.batch_size = BATCH;
	model.seq_len = LENGTH;
	model.inputs = inputs;
	model.num_activations = ACTIVATIONS;
	check(&model, 0.0);
	check_embedding(&model);
	for (int i = 1; i <= 2; i++) {
		step(&model);
		check(&model, i * (double)GPT2_LEARNING_RATE);
	}
	gpt2_close();
	free(model.params_memory);
	free(model.grads_memory);
	free(model.grads_acts_memory);
	return 0;
}
