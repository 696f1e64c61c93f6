/* GPT-2 of llm.c on tierd: what the lines that `port` adds to train_gpt2.c call.
 *
 * Each layer is a unit; so are the position embedding, the last norm, and each of eight slices of the token
 * embedding, which is a third of the model: whole, it would need a third of the memory at once. llm.c finds a
 * layer's tensor at l times its size, so a gathered layer's pointers are set back by as much, and its own
 * code runs unchanged. */
#include <stdbool.h>
#include <tierd.h>

/* The units: slices, positions, layers, last norm. */
#define GPT2_SLICES 8
enum { GPT2_WPE = GPT2_SLICES, GPT2_LAYER };
#define GPT2_LAYER_TENSORS 12
#define GPT2_LEARNING_RATE 1e-4f

static struct {
	struct tierd_node *node;
	struct tierd_job *job;
	struct tierd_ticket *ticket; /* of the step whose update may still run */
	uint32_t units;
	float *slice_logits; /* of all tokens for one slice */
} gpt2;

static void gpt2_check(int r, const char *what)
{
	if (r == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, tierd_message());
	exit(1);
}

/* ---- Units ---- */

static uint32_t gpt2_last(void)
{
	return gpt2.units - 1;
}

static bool gpt2_is_layer(uint32_t unit)
{
	return unit >= GPT2_LAYER && unit < gpt2_last();
}

/* The tensors of a unit, as their indices in llm.c's arrays. */
static int gpt2_first_tensor(uint32_t unit)
{
	return unit < GPT2_SLICES ? 0 : unit == GPT2_WPE ? 1 : unit == gpt2_last() ? 14 : 2;
}

static int gpt2_tensor_count(uint32_t unit)
{
	return unit <= GPT2_WPE ? 1 : unit == gpt2_last() ? 2 : GPT2_LAYER_TENSORS;
}

/* A slice's first row in the token embedding; of GPT2_SLICES, the number of rows. */
static size_t gpt2_row(const GPT2 *model, uint32_t slice)
{
	return (size_t)model->config.vocab_size * slice / GPT2_SLICES;
}

/* Where a unit's part of one of llm.c's tensors begins, and how long it is. */
static size_t gpt2_begin(const GPT2 *model, uint32_t unit, int tensor, size_t *ret_count)
{
	size_t layers = (size_t)model->config.num_layers, width = (size_t)model->config.channels;

	if (unit < GPT2_SLICES) {
		*ret_count = (gpt2_row(model, unit + 1) - gpt2_row(model, unit)) * width;
		return gpt2_row(model, unit) * width;
	}
	*ret_count = model->param_sizes[tensor] / (gpt2_is_layer(unit) ? layers : 1);
	return gpt2_is_layer(unit) ? (unit - GPT2_LAYER) * *ret_count : 0;
}

/* ParameterTensors is an array of pointers in all but name: each is set to where the whole tensor would
 * begin. */
static void gpt2_point(const GPT2 *model, uint32_t unit, const struct tierd_view *view,
		       ParameterTensors *tensors)
{
	float **pointers = (float **)tensors;
	int first = gpt2_first_tensor(unit);
	size_t count;

	for (int i = 0; i < gpt2_tensor_count(unit); i++)
		pointers[first + i] =
			(float *)tierd_at(view, (size_t)i) - gpt2_begin(model, unit, first + i, &count);
}

static void gpt2_gather(const GPT2 *model, uint32_t unit, ParameterTensors *params)
{
	struct tierd_view view;

	gpt2_check(tierd_gather(gpt2.job, unit, &view), "gathering");
	gpt2_point(model, unit, &view, params);
}

static void gpt2_release(uint32_t unit)
{
	gpt2_check(tierd_release(gpt2.job, unit), "releasing");
}

/* Zeroed. */
static void gpt2_gradients(const GPT2 *model, uint32_t unit, ParameterTensors *grads)
{
	struct tierd_view view;

	gpt2_check(tierd_gradients(gpt2.job, unit, &view), "gradients");
	gpt2_point(model, unit, &view, grads);
}

static void gpt2_push(uint32_t unit)
{
	gpt2_check(tierd_push(gpt2.job, unit), "pushing");
}

/* ---- The job ---- */

static void gpt2_define(const GPT2 *model, uint32_t unit)
{
	struct tierd_tensor tensors[GPT2_LAYER_TENSORS];
	char names[GPT2_LAYER_TENSORS][32], name[32];
	int first = gpt2_first_tensor(unit), count = gpt2_tensor_count(unit);
	size_t elements;

	for (int i = 0; i < count; i++) {
		struct tierd_tensor *tensor = &tensors[i];

		gpt2_begin(model, unit, first + i, &elements);
		snprintf(names[i], sizeof(names[i]), "unit%u.tensor%d", unit, first + i);
		*tensor = (struct tierd_tensor)TIERD_TENSOR_INIT;
		tensor->name = names[i];
		tensor->format = TIERD_FP32;
		tensor->dimensions = 1;
		tensor->shape[0] = elements;
		if (unit < GPT2_SLICES) {
			tensor->dimensions = 2;
			tensor->shape[0] = gpt2_row(model, unit + 1) - gpt2_row(model, unit);
			tensor->shape[1] = (uint64_t)model->config.channels;
			tensor->slice_of = "wte";
			tensor->slice_row = gpt2_row(model, unit);
			tensor->slice_rows = gpt2_row(model, GPT2_SLICES);
		}
	}
	snprintf(name, sizeof(name), "unit%u", unit);
	gpt2_check(tierd_unit_define(gpt2.job, name, tensors, (size_t)count, NULL), name);
}

static void gpt2_write(const GPT2 *model, uint32_t unit, FILE *file)
{
	int first = gpt2_first_tensor(unit);

	for (int i = 0; i < gpt2_tensor_count(unit); i++) {
		size_t elements, offset = gpt2_begin(model, unit, first + i, &elements);
		float *values = malloc(elements * sizeof(float));

		for (int before = 0; before < first + i; before++)
			offset += model->param_sizes[before];
		fseek(file, (long)(256 * sizeof(int) + offset * sizeof(float)), SEEK_SET);
		if (!values || fread(values, sizeof(float), elements, file) != elements) {
			fprintf(stderr, "the checkpoint cannot be read\n");
			exit(1);
		}
		gpt2_check(tierd_tensor_write(gpt2.job, unit, (uint32_t)i, 0, elements, values, false),
			   "writing");
		free(values);
	}
}

/* In place of the reading of all parameters. */
static void gpt2_open(GPT2 *model, FILE *file)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_group group = TIERD_GROUP_INIT;
	struct tierd_job_state state;
	GPT2 empty = { .config = model->config, .mean_loss = -1.0f };

	memcpy(empty.param_sizes, model->param_sizes, sizeof(empty.param_sizes));
	empty.params_memory = malloc(1); /* llm.c asks whether there is any */
	*model = empty;
	gpt2.units = GPT2_LAYER + (uint32_t)model->config.num_layers + 1;
	/* As llm.c's main() has them. */
	group.beta1 = 0.9f;
	group.beta2 = 0.999f;
	group.epsilon = 1e-8f;
	group.weight_decay = 0.0f;
	options.name = "llmc-gpt2";
	options.group_count = 1;
	options.groups = &group;
	gpt2_check(tierd_connect(NULL, &gpt2.node), "tierd");
	gpt2_check(tierd_job_open(gpt2.node, &options, &gpt2.job), "the job");
	for (uint32_t unit = 0; unit < gpt2.units; unit++)
		gpt2_define(model, unit);
	gpt2_check(tierd_job_state(gpt2.job, &state), "the job");
	for (uint32_t unit = 0; unit < gpt2.units && state.status == TIERD_NEW; unit++)
		gpt2_write(model, unit, file);
	fclose(file);
	gpt2_check(tierd_job_ready(gpt2.job, -1, &state), "the job");
	printf("tierd: the job stands at step %llu\n", (unsigned long long)state.step);
}

/* Before the backward pass: with rates that are known early, layers are updated while others are still
 * computed. */
static void gpt2_announce(GPT2 *model)
{
	struct tierd_rates rates = TIERD_RATES_INIT;

	if (!model->grads_acts_memory) {
		model->grads_acts_memory = malloc_and_point_activations(&model->grads_acts, model->act_sizes);
		model->grads_memory = malloc(1);
		memset(model->grads_acts_memory, 0, model->num_activations * sizeof(float));
	}
	rates.learning_rate = GPT2_LEARNING_RATE;
	gpt2_check(tierd_step_begin(gpt2.job, &rates, 1), "announcing");
}

/* In place of the update. It goes on while the next forward pass runs, whose gathers wait for their layer
 * alone. */
static void gpt2_step(void)
{
	struct tierd_rates rates = TIERD_RATES_INIT;

	if (gpt2.ticket)
		gpt2_check(tierd_ticket_wait(gpt2.ticket, TIERD_DONE, -1), "the step before");
	gpt2.ticket = tierd_ticket_free(gpt2.ticket);
	rates.learning_rate = GPT2_LEARNING_RATE;
	gpt2_check(tierd_step(gpt2.job, &rates, &gpt2.ticket), "the step");
}

static void gpt2_close(void)
{
	free(gpt2.slice_logits);
	gpt2.ticket = tierd_ticket_free(gpt2.ticket);
	gpt2_check(tierd_job_close(gpt2.job), "closing");
	gpt2.node = tierd_disconnect(gpt2.node);
}

/* ---- The token embedding, slice by slice, in place of llm.c's four uses of it ---- */

static bool gpt2_has_token(const GPT2 *model, uint32_t slice, int token)
{
	return (size_t)token >= gpt2_row(model, slice) && (size_t)token < gpt2_row(model, slice + 1);
}

static void gpt2_encode(const GPT2 *model, ParameterTensors *params, const int *inputs, float *encoded)
{
	int width = model->config.channels, length = model->seq_len, tokens = model->batch_size * length;

	gpt2_gather(model, GPT2_WPE, params);
	for (uint32_t slice = 0; slice < GPT2_SLICES; slice++) {
		gpt2_gather(model, slice, params);
		for (int i = 0; i < tokens; i++)
			for (int c = 0; c < width && gpt2_has_token(model, slice, inputs[i]); c++)
				encoded[i * width + c] = params->wte[inputs[i] * width + c] +
							 params->wpe[i % length * width + c];
		gpt2_release(slice);
	}
	gpt2_release(GPT2_WPE);
}

/* A slice's columns of the logits, which lie side by side in a memory of their own. */
static float *gpt2_slice_logits(const GPT2 *model)
{
	size_t most = (size_t)model->config.vocab_size / GPT2_SLICES + 1;

	if (!gpt2.slice_logits)
		gpt2.slice_logits =
			malloc((size_t)model->batch_size * (size_t)model->seq_len * most * sizeof(float));
	return gpt2.slice_logits;
}

static void gpt2_head(const GPT2 *model, ParameterTensors *params, float *logits, float *lnf)
{
	int width = model->config.channels, vocabulary = model->config.vocab_size;
	int batch = model->batch_size, length = model->seq_len;
	float *part = gpt2_slice_logits(model);

	for (uint32_t slice = 0; slice < GPT2_SLICES; slice++) {
		int row = (int)gpt2_row(model, slice), rows = (int)gpt2_row(model, slice + 1) - row;

		gpt2_gather(model, slice, params);
		matmul_forward(part, lnf, params->wte + (size_t)row * (size_t)width, NULL, batch, length,
			       width, rows);
		for (int i = 0; i < batch * length; i++)
			memcpy(logits + (size_t)i * (size_t)vocabulary + row, part + (size_t)i * (size_t)rows,
			       (size_t)rows * sizeof(float));
		gpt2_release(slice);
	}
}

/* Of the last norm's output; the slices' own gradients come at the end, when the tokens' are known, too. */
static void gpt2_head_backward(const GPT2 *model, ParameterTensors *params, float *dlnf, const float *dlogits)
{
	int width = model->config.channels, vocabulary = model->config.vocab_size;
	int tokens = model->batch_size * model->seq_len;

	for (uint32_t slice = 0; slice < GPT2_SLICES; slice++) {
		int row = (int)gpt2_row(model, slice), end = (int)gpt2_row(model, slice + 1);

		gpt2_gather(model, slice, params);
#pragma omp parallel for
		for (int i = 0; i < tokens; i++)
			for (int o = row; o < end; o++) {
				const float *weights = params->wte + (size_t)o * (size_t)width;
				float d = dlogits[(size_t)i * (size_t)vocabulary + o];

				for (int c = 0; c < width; c++)
					dlnf[i * width + c] += weights[c] * d;
			}
		gpt2_release(slice);
	}
}

static void gpt2_embeddings_backward(const GPT2 *model, ParameterTensors *grads, const float *dlogits,
				     const float *lnf, const float *dencoded)
{
	int width = model->config.channels, vocabulary = model->config.vocab_size;
	int length = model->seq_len, tokens = model->batch_size * length;

	gpt2_gradients(model, GPT2_WPE, grads);
	for (int i = 0; i < tokens; i++)
		for (int c = 0; c < width; c++)
			grads->wpe[i % length * width + c] += dencoded[i * width + c];
	gpt2_push(GPT2_WPE);
	for (uint32_t slice = 0; slice < GPT2_SLICES; slice++) {
		int row = (int)gpt2_row(model, slice), end = (int)gpt2_row(model, slice + 1);

		gpt2_gradients(model, slice, grads);
#pragma omp parallel for
		for (int o = row; o < end; o++)
			for (int i = 0; i < tokens; i++) {
				float d = dlogits[(size_t)i * (size_t)vocabulary + o];

				for (int c = 0; c < width; c++)
					grads->wte[(size_t)o * (size_t)width + c] += lnf[i * width + c] * d;
			}
		for (int i = 0; i < tokens; i++)
			for (int c = 0; c < width && gpt2_has_token(model, slice, model->inputs[i]); c++)
				grads->wte[(size_t)model->inputs[i] * (size_t)width + c] +=
					dencoded[i * width + c];
		gpt2_push(slice);
	}
}
