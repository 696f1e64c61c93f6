/* A trainer in one file. It learns to swap neighbours in a vector and halve them, with layers h + A h. tierd
 * keeps the parameters, gradients and AdamW state. A rank that was killed and is started again goes on where
 * the job stands; so do all ranks when tierd is restarted, if TIERD_RECONNECT_MS says how long to wait for
 * it.
 *
 *     cc -O2 minimal.c -o minimal $(pkg-config --cflags --libs libtierd)
 *     ./minimal JOB STEPS [RANK WORLD_SIZE]     a process for each rank */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <tierd.h>

#define TRY(call)                                                                                            \
	if ((r = (call)) < 0)                                                                                \
	return r
enum { LAYERS = 4, WIDTH = 64, BATCH = 32 };

static struct tierd_node *node;
static struct tierd_job *job;
static struct tierd_ticket *ticket;
static unsigned rank, world_size = 1;
static float hidden[LAYERS + 1][BATCH * WIDTH], error[LAYERS + 1][BATCH * WIDTH];

static void forward(const struct tierd_view *parameters, unsigned layer)
{
	const float *weight = tierd_at(parameters, 0), *in = hidden[layer];
	float *out = hidden[layer + 1];

	for (int i = 0; i < BATCH * WIDTH; i++) {
		out[i] = in[i];
		for (int j = 0; j < WIDTH; j++)
			out[i] += weight[i % WIDTH * WIDTH + j] * in[i / WIDTH * WIDTH + j];
	}
}

static void backward(const struct tierd_view *parameters, const struct tierd_view *gradients, unsigned layer)
{
	const float *weight = tierd_at(parameters, 0), *out = error[layer + 1];
	float *gradient = tierd_at(gradients, 0), *in = error[layer];

	for (int i = 0; i < BATCH * WIDTH; i++) {
		in[i] = out[i];
		for (int j = 0; j < WIDTH; j++) {
			in[i] += weight[j * WIDTH + i % WIDTH] * out[i / WIDTH * WIDTH + j];
			gradient[j * WIDTH + i % WIDTH] += hidden[layer][i] * out[i / WIDTH * WIDTH + j];
		}
	}
}

/* Each step has its own numbers: one that is taken again gets the same bits. */
static void draw_batch(uint64_t seed)
{
	for (int i = 0; i < BATCH * WIDTH; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		hidden[0][i] = (float)(int32_t)(seed >> 32) / 2147483648.0f;
	}
}

/* Its update goes on when this returns; it has the ticket then, which that of the step before had. */
static int take_step(uint64_t step)
{
	struct tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_view parameters, gradients;
	float loss = 0;
	int r;

	rates.learning_rate = 0.003f;
	rates.gradient_scale = 1.0f / (float)(BATCH * world_size); /* of the sum over all ranks */
	TRY(tierd_step_begin(job, &rates, 1)); /* early: layers are updated during the backward pass */
	draw_batch(step * world_size + rank);
	for (unsigned layer = 0; layer < LAYERS; layer++) {
		TRY(tierd_gather(job, layer, &parameters)); /* waits for this layer's update alone */
		forward(&parameters, layer);
		TRY(tierd_release(job, layer));
	}
	for (int i = 0; i < BATCH * WIDTH; i++) {
		error[LAYERS][i] = hidden[LAYERS][i] - 0.5f * hidden[0][i ^ 1];
		loss += error[LAYERS][i] * error[LAYERS][i] / (BATCH * WIDTH);
	}
	printf("step %llu: loss %.9g\n", (unsigned long long)step + 1, (double)loss);
	for (unsigned layer = LAYERS; layer-- > 0;) {
		TRY(tierd_gather(job, layer, &parameters));
		TRY(tierd_gradients(job, layer, &gradients)); /* zeros */
		backward(&parameters, &gradients, layer);
		TRY(tierd_push(job, layer));
		TRY(tierd_release(job, layer));
	}
	TRY(ticket ? tierd_ticket_wait(ticket, TIERD_DONE, -1) : 0); /* the step before: applied long ago */
	ticket = tierd_ticket_free(ticket);
	return tierd_step(job, &rates, &ticket);
}

static int train(uint64_t steps)
{
	struct tierd_job_state state;
	int r;

	do {
		r = tierd_job_ready(job, -1, &state); /* all ranks meet, at a step that they are told */
		while (r == 0 && state.step < steps)
			r = take_step(state.step++);
		if (r == 0 && ticket)
			r = tierd_ticket_wait(ticket, TIERD_DONE, -1);
		ticket = tierd_ticket_free(ticket);
		tierd_release_all(job);
	} while (r == -ESTALE); /* a rank or tierd has died */
	return r;
}

static int run(const char *name, uint64_t steps)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	char layer_name[16];
	int r;

	TRY(tierd_connect(NULL, &node));
	options.name = name;
	options.rank = rank;
	options.world_size = world_size;
	TRY(tierd_job_open(node, &options, &job));
	tensor.name = layer_name;
	tensor.format = TIERD_FP32;
	tensor.dimensions = 2;
	tensor.shape[0] = tensor.shape[1] = WIDTH;
	tensor.initializer = TIERD_INITIALIZE_ZEROS;
	for (unsigned layer = 0; layer < LAYERS; layer++) {
		snprintf(layer_name, sizeof(layer_name), "layer%u", layer);
		TRY(tierd_unit_define(job, layer_name, &tensor, 1, NULL)); /* counted from 0, as layers are */
	}
	TRY(train(steps));
	return tierd_job_close(job); /* when the last step is durable, if the job is */
}

int main(int argc, char **argv)
{
	if (argc != 3 && argc != 5)
		return fprintf(stderr, "usage: minimal JOB STEPS [RANK WORLD_SIZE]\n"), 2;
	rank = argc == 5 ? (unsigned)atoi(argv[3]) : 0;
	world_size = argc == 5 ? (unsigned)atoi(argv[4]) : 1;
	setvbuf(stdout, NULL, _IOLBF, 0);
	int r = run(argv[1], strtoull(argv[2], NULL, 10));

	if (r < 0)
		fprintf(stderr, "minimal: rank %u: %s\n", rank, tierd_message());
	tierd_disconnect(node);
	return r < 0;
}
