/* GPT-2 of llm.c on tierd: what the lines that `port` adds to train_gpt2.c call.
 *
 * Each layer is a unit; so are the two embeddings and the last norm. llm.c finds a layer's tensor at l times
 * its size, so a gathered layer's pointers are set back by as much, and its own code runs unchanged. */
#include <tierd.h>

/* Each begins as GPT2_TENSORS has it: tensors that are not of a layer are units of one or two tensors. */
enum { GPT2_WTE, GPT2_WPE, GPT2_LAYER };
#define GPT2_LAYER_TENSORS 12
#define GPT2_BETA1 0.9f
#define GPT2_BETA2 0.999f
#define GPT2_EPSILON 1e-8f
#define GPT2_LEARNING_RATE 1e-4f

static struct {
	struct tierd_node *node;
	struct tierd_job *job;
	struct tierd_ticket *ticket; /* of the step whose update may still run */
	uint32_t units;
} gpt2;

static void gpt2_check(int r, const char *what)
{
	if (r == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, tierd_message());
	exit(1);
}

/* The unit after all layers: the last norm. */
static uint32_t gpt2_last(void)
{
	return gpt2.units - 1;
}

/* The tensors of a unit, as their indices in llm.c's arrays. */
static int gpt2_first_tensor(uint32_t unit)
{
	return unit < GPT2_LAYER ? (int)unit : unit == gpt2_last() ? 14 : 2;
}

static int gpt2_tensor_count(uint32_t unit)
{
	return unit < GPT2_LAYER ? 1 : unit == gpt2_last() ? 2 : GPT2_LAYER_TENSORS;
}

/* ParameterTensors is an array of pointers in all but name. */
static float **gpt2_pointers(ParameterTensors *tensors)
{
	return (float **)tensors;
}

static size_t gpt2_tensor_elements(const GPT2 *model, uint32_t unit, int tensor)
{
	bool is_layer = unit >= GPT2_LAYER && unit < gpt2_last();

	return model->param_sizes[tensor] / (is_layer ? (size_t)model->config.num_layers : 1);
}

static void gpt2_point(const GPT2 *model, uint32_t unit, const struct tierd_view *view,
		       ParameterTensors *tensors)
{
	uint32_t layer = unit >= GPT2_LAYER && unit < gpt2_last() ? unit - GPT2_LAYER : 0;
	int first = gpt2_first_tensor(unit);

	for (int i = 0; i < gpt2_tensor_count(unit); i++)
		gpt2_pointers(tensors)[first + i] = (float *)tierd_at(view, (size_t)i) -
						    layer * gpt2_tensor_elements(model, unit, first + i);
}

static void gpt2_define(const GPT2 *model, uint32_t unit)
{
	struct tierd_tensor tensors[GPT2_LAYER_TENSORS];
	char names[GPT2_LAYER_TENSORS][32], name[32];
	int first = gpt2_first_tensor(unit), count = gpt2_tensor_count(unit);

	for (int i = 0; i < count; i++) {
		tensors[i] = (struct tierd_tensor)TIERD_TENSOR_INIT;
		snprintf(names[i], sizeof(names[i]), "unit%u.tensor%d", unit, first + i);
		tensors[i].name = names[i];
		tensors[i].format = TIERD_FP32;
		tensors[i].dimensions = 1;
		tensors[i].shape[0] = gpt2_tensor_elements(model, unit, first + i);
	}
	snprintf(name, sizeof(name), "unit%u", unit);
	gpt2_check(tierd_unit_define(gpt2.job, name, tensors, (size_t)count, &unit), name);
}

/* In the file a tensor's layers lie one after the other. */
static void gpt2_write(const GPT2 *model, uint32_t unit, FILE *file)
{
	int first = gpt2_first_tensor(unit);

	for (int i = 0; i < gpt2_tensor_count(unit); i++) {
		size_t elements = gpt2_tensor_elements(model, unit, first + i), offset = 0;
		float *values = malloc(elements * sizeof(float));

		for (int before = 0; before < first + i; before++)
			offset += model->param_sizes[before];
		if (unit >= GPT2_LAYER && unit < gpt2_last())
			offset += (unit - GPT2_LAYER) * elements;
		fseek(file, (long)(256 * sizeof(int) + offset * sizeof(float)), SEEK_SET);
		if (!values || fread(values, sizeof(float), elements, file) != elements)
			exit(1);
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
	gpt2.units = (uint32_t)model->config.num_layers + 3;
	options.name = "llmc-gpt2";
	options.group_count = 1;
	options.groups = &group;
	group.beta1 = GPT2_BETA1;
	group.beta2 = GPT2_BETA2;
	group.epsilon = GPT2_EPSILON;
	group.weight_decay = 0.0f;
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

/* Zeroed at first; the token embedding's stays with us from the head to the tail of the backward pass. */
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
	gpt2.ticket = tierd_ticket_free(gpt2.ticket);
	gpt2_check(tierd_job_close(gpt2.job), "closing");
	gpt2.node = tierd_disconnect(gpt2.node);
}
