/* Steps of the example trainer on a GPU whose parameters are in host memory, over what they would take if all
 * that is moved were hidden: the longer of its computing alone, with all of the model on the GPU, and of the
 * bytes that have to be moved over plain copies. */
#include <errno.h>
#include <stdio.h>

#include "examples/gpt/cuda/device.h"
#include "tests/bench/bench.h"
#include "tests/bench/node.h"
#include "tests/gpu/hardware.h"
#include "tests/gpu/plain_copy.h"
#include "tests/unit/gpt_kernels.h"

#include "network.h"
#include "options.h"
#include "random.h"

#define LIMIT 1.10
/* Layers that the GPU has room for: the one that is computed, the next, and one more. */
#define KEPT_LAYERS 3
#define PROBE_SECONDS 0.5

static const struct options full = {
	.layers = 12, .width = 1024, .heads = 16, .context = 1024, .batch = 8, .micro_batches = 4
};
static const struct options quick = {
	.layers = 5, .width = 64, .heads = 2, .context = 16, .batch = 1, .micro_batches = 1
};

/* Units that lie on the GPU for good, and gradients that nobody takes: a backend. */
struct still {
	struct backend backend;
	struct unit_view *parameters;
	struct unit_view gradients;
};

struct scene {
	struct bench_node tierd;
	struct options options;
	struct model *model;
	struct compute *gpu;
	struct network *network;
	struct backend *backend;
	struct still still;
	void **memory; /* of its parameters, and of the gradients */
	uint8_t *text;
	double bound; /* seconds of a step's copies */
};

/* ---- Computing alone ---- */

static int still_gather_on(struct backend *backend, unsigned unit, void *stream,
			   struct unit_view *ret_parameters)
{
	*ret_parameters = container_of(backend, struct still, backend)->parameters[unit];
	return 0;
}

static int still_gradients_on(struct backend *backend, unsigned unit, void *stream,
			      struct unit_view *ret_gradients)
{
	*ret_gradients = container_of(backend, struct still, backend)->gradients;
	return 0;
}

static int still_done(struct backend *backend, unsigned unit, void *stream)
{
	return 0;
}

static const struct backend_ops still_ops = {
	.gather_on = still_gather_on,
	.release_on = still_done,
	.gradients_on = still_gradients_on,
	.push_on = still_done,
};

static int place_unit(struct scene *scene, unsigned unit, void **memory, struct unit_view *ret_view)
{
	const struct unit *description = &scene->model->units[unit];
	size_t bytes = 0;
	int r;

	for (unsigned i = 0; i < description->tensor_count; i++)
		bytes += (tensor_elements(&description->tensors[i]) * sizeof(float) + 255) / 256 * 256;
	r = scene->gpu->ops->allocate(scene->gpu, bytes, memory);
	if (r < 0)
		return r;
	/* Zeros take as long as other numbers. */
	scene->gpu->ops->clear(scene->gpu, *memory, bytes);
	bytes = 0;
	for (unsigned i = 0; i < description->tensor_count; i++) {
		ret_view->tensor[i] = (char *)*memory + bytes;
		bytes += (tensor_elements(&description->tensors[i]) * sizeof(float) + 255) / 256 * 256;
	}
	return 0;
}

/* A layer's gradients have room for those of any other unit, whose tensors are fewer and smaller; but for the
 * embedding's, which are as many as there are bytes. */
static int open_still(struct scene *scene)
{
	unsigned count = scene->model->unit_count;
	int r = 0;

	scene->still = (struct still){
		.backend = { .ops = &still_ops, .options = &scene->options, .loss_scale = 1.0f }
	};
	scene->still.parameters = calloc(count, sizeof(scene->still.parameters[0]));
	scene->memory = calloc(count + 2, sizeof(scene->memory[0]));
	if (!scene->still.parameters || !scene->memory)
		return -ENOMEM;
	for (unsigned i = 0; r == 0 && i < count; i++)
		r = place_unit(scene, i, &scene->memory[i], &scene->still.parameters[i]);
	if (r == 0)
		r = place_unit(scene, 1, &scene->memory[count], &scene->still.gradients);
	if (r == 0)
		r = scene->gpu->ops->allocate(scene->gpu,
					      (MODEL_VOCABULARY + scene->options.context) *
						      scene->options.width * sizeof(float),
					      &scene->memory[count + 1]);
	if (r < 0)
		return r;
	scene->still.gradients.tensor[EMBEDDING_TOKEN] = scene->memory[count + 1];
	scene->still.gradients.tensor[EMBEDDING_POSITION] =
		(float *)scene->memory[count + 1] + MODEL_VOCABULARY * scene->options.width;
	return 0;
}

static int compute_step(struct scene *scene, struct backend *backend)
{
	double loss;
	int r = 0;

	for (uint64_t i = 0; r == 0 && i < scene->options.micro_batches; i++)
		r = network_train(scene->network, backend, scene->text, &loss);
	return r;
}

/* ---- The two sides ---- */

static const struct backend_rates rates = { 1e-4f, 1.0f, 1.0f };

static int take_step(struct scene *scene)
{
	struct backend *backend = scene->backend;
	struct backend_result result;
	int r = backend->ops->announce(backend, &rates, scene->options.micro_batches);

	if (r == 0)
		r = compute_step(scene, backend);
	if (r == 0)
		r = backend_wait(backend, &result);
	return r == 0 || r == -ENODATA ? backend_step(backend, &rates) : r;
}

static double run_steps(void *context, double seconds)
{
	struct scene *scene = context;
	uint64_t start;
	unsigned steps = 0;
	int r = take_step(scene);

	start = clock_now_ns();
	while (r == 0 && (steps == 0 || bench_seconds_since(start) < seconds)) {
		r = take_step(scene);
		steps++;
	}
	if (r < 0)
		fprintf(stderr, "%s\n",
			scene->gpu->message ? scene->gpu->message
					    : scene->backend->ops->message(scene->backend));
	return r < 0 ? r : steps / bench_seconds_since(start);
}

static double run_bound(void *context, double seconds)
{
	struct scene *scene = context;
	uint64_t start = clock_now_ns();
	unsigned steps = 0;
	double computing;
	int r = 0;

	do {
		r = compute_step(scene, &scene->still.backend);
		steps++;
	} while (r == 0 && bench_seconds_since(start) < seconds);
	computing = bench_seconds_since(start) / steps;
	return r < 0 ? r : 1 / (computing > scene->bound ? computing : scene->bound);
}

/* ---- All of it ---- */

static double unit_bytes(const struct scene *scene, unsigned unit)
{
	double bytes = 0;

	for (unsigned i = 0; i < scene->model->units[unit].tensor_count; i++) {
		const struct tensor *tensor = &scene->model->units[unit].tensors[i];

		bytes += (double)(tensor_elements(tensor) * number_size(tensor->format));
	}
	return bytes;
}

/* The least that has to be moved: there, in forward and backward each, the layers that have no room; back,
 * all gradients. The two ways at once. */
static void find_bound(struct scene *scene, double seconds)
{
	double layers = (double)scene->options.layers, layer = unit_bytes(scene, 1), gradients = 0, in, out;

	for (unsigned i = 0; i < scene->model->unit_count; i++)
		gradients += unit_bytes(scene, i);
	in = 2 * (layers - KEPT_LAYERS) * layer / plain_copy_rate(false, seconds);
	out = gradients / plain_copy_rate(true, seconds);
	scene->bound = (double)scene->options.micro_batches * (in > out ? in : out);
	printf("%s: of a step the copies alone take %.1f ms\n", hardware_name(), scene->bound * 1e3);
}

static void set_options(struct scene *scene, bool is_quick)
{
	struct options *options = &scene->options;

	*options = is_quick ? quick : full;
	options->format = NUMBER_BF16;
	options->optimizer = TIERD_ADAMW;
	options->beta1 = 0.9;
	options->beta2 = 0.95;
	options->clip = 1.0;
	options->loss_scale = 1.0;
	options->seed = 1;
	options->steps = UINT64_MAX;
	options->job = "overlap";
	options->stage = 3;
	options->mode = TIERD_CREATE;
	options->world_size = 1;
	options->timeout = 60;
	options->socket = scene->tierd.socket;
	options->parameters_on = options->optimizer_on = TIERD_PLACE_HOST;
	options->durability = TIERD_DURABILITY_NONE;
	options->device = DEVICE_CUDA;
	options->crash_rank = UINT64_MAX;
}

/* As train.c does. */
static int write_values(struct scene *scene)
{
	float values[4096];
	int r = 0;

	for (unsigned unit = 0; unit < scene->model->unit_count; unit++)
		for (unsigned i = 0; i < scene->model->units[unit].tensor_count; i++) {
			uint64_t elements = tensor_elements(&scene->model->units[unit].tensors[i]);

			for (uint64_t first = 0, count; r == 0 && first < elements; first += count) {
				count = elements - first < 4096 ? elements - first : 4096;
				model_initial_values(scene->model, unit, i, first, count, values);
				r = scene->backend->ops->write(scene->backend, unit, i, first, count, values);
			}
		}
	return r;
}

static int open_job(struct scene *scene)
{
	uint64_t step;
	int r;

	scene->options.gpu = 0;
	/* A layer more is on its way; and of gradients there are two buffers, and the embedding's. */
	scene->options.gpu_budget =
		(uint64_t)((KEPT_LAYERS + 3) * unit_bytes(scene, 1) + unit_bytes(scene, 0));
	if (scene->options.gpu_budget < UINT64_C(8) << 20)
		scene->options.gpu_budget = UINT64_C(8) << 20;
	r = tierd_backend_new(&scene->options, scene->model, &scene->backend);
	if (r == 0)
		r = write_values(scene);
	if (r == 0)
		r = scene->backend->ops->ready(scene->backend, &step);
	return r == 0 ? scene->backend->ops->phase(scene->backend, "train") : r;
}

static int open_scene(struct bench *bench, struct scene *scene)
{
	const struct options *options = &scene->options;
	struct model_shape shape;
	size_t bytes;
	int r = bench_node_start(&scene->tierd, "8G", "1G");

	set_options(scene, bench_is_quick(bench));
	shape = (struct model_shape){ options->layers, options->width, options->heads, options->context,
				      NUMBER_BF16 };
	bytes = options->batch * (options->context + 1);
	scene->text = malloc(bytes);
	for (size_t i = 0; scene->text && i < bytes; i++)
		scene->text[i] = (uint8_t)random_at(1, i);
	if (r == 0)
		r = scene->text ? model_new(&shape, 1, &scene->model) : -ENOMEM;
	if (r == 0)
		r = cuda_new(0, &scene->gpu);
	if (r == 0)
		r = network_new(scene->model, options->batch, false, scene->gpu, &scene->network);
	if (r == 0)
		r = open_still(scene);
	return r == 0 ? open_job(scene) : r;
}

static void close_scene(struct scene *scene)
{
	for (unsigned i = 0; scene->memory && i < scene->model->unit_count + 2; i++)
		scene->gpu->ops->free(scene->gpu, scene->memory[i]);
	backend_free(scene->backend);
	network_free(scene->network);
	cuda_free(scene->gpu);
	model_free(scene->model);
	free(scene->memory);
	free(scene->still.parameters);
	free(scene->text);
	bench_node_stop(&scene->tierd);
}

static int measure(struct bench *bench)
{
	struct scene scene = { .tierd = BENCH_NODE_INIT };
	int r = open_scene(bench, &scene);

	if (r == 0)
		find_bound(&scene, bench_is_quick(bench) ? 0.01 : PROBE_SECONDS);
	if (r == 0)
		r = bench_compare(bench, &(struct bench_comparison){
						 .name = hardware_result("gpu_overlap_ratio"),
						 .bound = BENCH_AT_MOST,
						 .limit = LIMIT,
						 .unit = "steps a second",
						 .scale = 1,
						 .ours = { run_steps, &scene },
						 .theirs = { run_bound, &scene },
					 });
	close_scene(&scene);
	return r;
}

static int run(struct bench *bench)
{
	const char *why = hardware_find();

	if (!why)
		why = gpt_place_find();
	if (why)
		bench_skip(bench, "gpu_overlap_ratio", why);
	return !why && bench_wants(bench, "gpu_overlap_ratio") ? measure(bench) : 0;
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
