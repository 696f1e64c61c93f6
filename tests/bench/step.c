/* Durable steps of jobs whose state lies on NVMe: the bytes that the kernel has moved for the daemon, from
 * the first push until the step is durable, per parameter; and the time from the closing of the step on, over
 * the time that what is moved then takes fio, which reads and writes at once, as deep as it likes best. */
#include "tests/bench/step.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "common/clock.h"

#define UNITS 48
#define QUICK_UNITS 8
#define GRADIENT 0x3a80 /* of bf16, about 0.001 */
#define LIMIT 1.10
#define DEPTH_SECONDS 1

const struct step_layout step_layouts[STEP_LAYOUTS] = {
	[STEP_EXACT] = { "step_bytes_per_param_exact", TIERD_PLACE_NVME, TIERD_MOMENTS_FP32, 24.1 },
	[STEP_EXACT_HOST] = { "step_bytes_per_param_exact_host", TIERD_PLACE_HOST, TIERD_MOMENTS_FP32, 22.1 },
	[STEP_BF16] = { "step_bytes_per_param_bf16", TIERD_PLACE_NVME, TIERD_MOMENTS_BF16, 0 },
	[STEP_BF16_HOST] = { "step_bytes_per_param_bf16_host", TIERD_PLACE_HOST, TIERD_MOMENTS_BF16, 0 },
	[STEP_INT8] = { "step_bytes_per_param_int8", TIERD_PLACE_NVME, TIERD_MOMENTS_INT8, 12.2 },
	[STEP_INT8_HOST] = { "step_bytes_per_param_int8_host", TIERD_PLACE_HOST, TIERD_MOMENTS_INT8, 10.2 },
};

/* ---- The job ---- */

int step_open_job(struct step_scene *scene, const struct step_layout *layout)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_group group = TIERD_GROUP_INIT;
	struct tierd_job_state state;
	int r;

	group.moments = layout->moments;
	options.name = "step";
	options.mode = TIERD_REPLACE;
	options.parameter_placement = layout->parameters_on;
	options.optimizer_placement = TIERD_PLACE_NVME;
	options.group_count = 1;
	options.groups = &group;
	/* With parameters on NVMe memory holds the sums, and few of these. */
	if (layout->parameters_on == TIERD_PLACE_NVME)
		options.host_budget = (scene->units + 8) * STEP_UNIT_ELEMENTS * sizeof(float);
	r = tierd_job_open(scene->node, &options, &scene->job);
	if (r == 0)
		r = bench_define_units(scene->job, &(struct bench_units){ .count = scene->units,
									  .elements = STEP_UNIT_ELEMENTS });
	return r < 0 ? r : tierd_job_ready(scene->job, -1, &state);
}

/* ---- A step ---- */

/* Constant ones, of every element: nothing stays zero. */
static int push_all(const struct step_scene *scene)
{
	struct tierd_view gradients;
	int r = 0;

	for (uint32_t unit = 0; unit < scene->units && r == 0; unit++) {
		uint16_t *values;

		r = tierd_gradients(scene->job, unit, &gradients);
		if (r < 0)
			break;
		values = tierd_at(&gradients, 0);
		for (uint64_t i = 0; i < STEP_UNIT_ELEMENTS; i++)
			values[i] = GRADIENT;
		r = tierd_push(scene->job, unit);
	}
	return r;
}

/* Until it is durable. */
static int step(const struct step_scene *scene, double *ret_seconds)
{
	struct tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_ticket *ticket = NULL;
	uint64_t start = clock_now_ns();
	int r;

	rates.learning_rate = 1e-4f;
	r = tierd_step(scene->job, &rates, &ticket);
	if (r == 0)
		r = tierd_ticket_wait(ticket, TIERD_DURABLE, -1);
	*ret_seconds = (double)(clock_now_ns() - start) / 1e9;
	tierd_ticket_free(ticket);
	return r;
}

int step_take(const struct step_scene *scene, struct step_cost *ret_cost)
{
	double begin = 0, close = 0, end = 0;
	int r = bench_node_moved_bytes(&scene->tierd, &begin);

	if (r == 0)
		r = push_all(scene);
	if (r == 0)
		r = bench_node_moved_bytes(&scene->tierd, &close);
	if (r == 0)
		r = step(scene, &ret_cost->late_seconds);
	if (r == 0)
		r = bench_node_moved_bytes(&scene->tierd, &end);
	ret_cost->bytes = end - begin;
	ret_cost->late_bytes = end - close;
	if (r < 0)
		fprintf(stderr, "step: %s\n", tierd_message());
	return r;
}

int step_warm_up(const struct step_scene *scene)
{
	struct step_cost cost;
	int r = 0;

	for (int i = 0; i < 2 && r == 0; i++)
		r = step_take(scene, &cost);
	return r;
}

/* ---- Bytes ---- */

static int measure_bytes(struct bench *bench, struct step_scene *scene, const struct step_layout *layout)
{
	struct step_cost cost = { 0 };
	int r = step_open_job(scene, layout);

	if (r == 0)
		r = step_warm_up(scene);
	if (r == 0)
		r = step_take(scene, &cost);
	if (r == 0)
		r = tierd_job_close(scene->job);
	if (r < 0) {
		fprintf(stderr, "%s: %s\n", layout->name, tierd_message());
		return r;
	}
	return bench_record(bench, &(struct bench_result){
					   .name = layout->name,
					   .value = cost.bytes / (double)(scene->units * STEP_UNIT_ELEMENTS),
					   .unit = "bytes",
					   .limit = layout->limit });
}

/* ---- Time ---- */

static double run_step(void *context, double seconds)
{
	struct step_cost cost;
	int r = step_take(context, &cost);

	return r < 0 ? r : cost.late_bytes / cost.late_seconds;
}

static int measure_time(struct bench *bench, struct step_scene *scene)
{
	const struct bench_comparison comparison = { .name = "step_nvme_ratio",
						     .bound = BENCH_AT_MOST,
						     .limit = LIMIT,
						     .unit = "MB/s",
						     .scale = 1e6,
						     .ours = { run_step, scene },
						     .theirs = { fio_run, &scene->fio } };
	int r;

	if (!fio_is_installed()) {
		bench_skip(bench, "step_nvme_ratio", FIO_MISSING);
		return 0;
	}
	r = fio_make_file(&scene->fio, scene->tierd.disk);
	if (r == 0)
		r = fio_find_depth(&scene->fio, bench_is_quick(bench) ? 0.1 : DEPTH_SECONDS);
	if (r == 0)
		r = step_open_job(scene, &step_layouts[0]);
	if (r == 0)
		r = step_warm_up(scene);
	if (r == 0)
		r = bench_compare(bench, &comparison);
	return r < 0 ? r : tierd_job_close(scene->job);
}

/* ---- All of them ---- */

static bool is_wanted(const struct bench *bench)
{
	for (size_t i = 0; i < ARRAY_LENGTH(step_layouts); i++)
		if (bench_wants(bench, step_layouts[i].name))
			return true;
	return bench_wants(bench, "step_nvme_ratio") || step_wants_peer(bench);
}

static int run(struct bench *bench)
{
	struct step_scene scene = { .tierd = BENCH_NODE_INIT,
				    .fio.direction = "readwrite",
				    .units = bench_is_quick(bench) ? QUICK_UNITS : UNITS };
	int r = bench_node_start(&scene.tierd, "1G", "4G");

	if (r == 0)
		r = tierd_connect(scene.tierd.socket, &scene.node);
	for (size_t i = 0; i < ARRAY_LENGTH(step_layouts) && r == 0; i++)
		if (bench_wants(bench, step_layouts[i].name))
			r = measure_bytes(bench, &scene, &step_layouts[i]);
	if (r == 0 && bench_wants(bench, "step_nvme_ratio"))
		r = measure_time(bench, &scene);
	if (r == 0 && step_wants_peer(bench))
		r = bench_step_peer(bench, &scene);
	scene.node = tierd_disconnect(scene.node);
	bench_node_stop(&scene.tierd);
	return r;
}

int main(int argc, char **argv)
{
	struct bench *bench = NULL;
	int r = bench_new(argc, argv, &bench);

	if (r < 0)
		return EXIT_FAILURE;
	if (is_wanted(bench))
		r = run(bench);
	return bench_end(bench, r);
}
