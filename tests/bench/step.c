/* Durable steps of jobs whose state lies on NVMe: the bytes that the kernel has moved for the daemon, from
 * the first push until the step is durable, per parameter; and the time from the closing of the step on, over
 * the time that what is moved then takes fio, which reads and writes at once, as deep as it likes best. */
#include "tests/bench/step.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/cleanup.h"
#include "tests/bench/kept.h"

#define UNITS 48
#define QUICK_UNITS 8
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

/* Nothing of its state stays in memory: with parameters on NVMe that holds the sums, and few of these; with
 * parameters there, what they need. */
int step_open_job(struct step_scene *scene, const struct step_layout *layout)
{
	struct stepper_options options = { .name = "step",
					   .units = scene->units,
					   .parameters_on = layout->parameters_on,
					   .moments = layout->moments,
					   .host_budget =
						   (scene->units + 8) * STEPPER_ELEMENTS * sizeof(float) };
	int r = 0;

	if (layout->parameters_on != TIERD_PLACE_NVME)
		r = stepper_least(scene->node, &options, &options.host_budget);
	return r < 0 ? r : stepper_open(scene->node, &options, &scene->stepper);
}

/* ---- A step ---- */

int step_take(const struct step_scene *scene, struct step_cost *ret_cost)
{
	double begin = 0, close = 0, end = 0;
	uint64_t close_ns = 0, end_ns = 0;
	int r = bench_node_moved_bytes(&scene->tierd, &begin);

	if (r == 0)
		r = stepper_push(&scene->stepper);
	if (r == 0)
		r = bench_node_moved_bytes(&scene->tierd, &close);
	if (r == 0)
		r = bench_node_processor_ns(&scene->tierd, &close_ns);
	if (r == 0)
		r = stepper_step(&scene->stepper, TIERD_DURABLE, &ret_cost->late_seconds);
	if (r == 0)
		r = bench_node_moved_bytes(&scene->tierd, &end);
	if (r == 0)
		r = bench_node_processor_ns(&scene->tierd, &end_ns);
	ret_cost->late_processor_seconds = (double)(end_ns - close_ns) / 1e9;
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
		r = tierd_job_close(scene->stepper.job);
	if (r < 0) {
		fprintf(stderr, "%s: %s\n", layout->name, tierd_message());
		return r;
	}
	return bench_record(bench, layout->name, cost.bytes / (double)(scene->units * STEPPER_ELEMENTS),
			    "bytes", layout->limit);
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
		r = fio_find_depth(&scene->fio, FIO_STAGING_MIB, bench_is_quick(bench) ? 0.1 : DEPTH_SECONDS);
	if (r == 0)
		r = step_open_job(scene, &step_layouts[0]);
	if (r == 0)
		r = step_warm_up(scene);
	if (r == 0)
		r = bench_compare(bench, &comparison);
	return r < 0 ? r : tierd_job_close(scene->stepper.job);
}

/* ---- All of them ---- */

static bool is_wanted(const struct bench *bench)
{
	for (size_t i = 0; i < ARRAY_LENGTH(step_layouts); i++)
		if (bench_wants(bench, step_layouts[i].name))
			return true;
	return bench_wants(bench, "step_nvme_ratio") || kept_is_wanted(bench) || step_wants_peer(bench);
}

static int run_in_scene(struct bench *bench)
{
	struct step_scene scene = { .tierd = BENCH_NODE_INIT,
				    .fio.direction = "readwrite",
				    .units = bench_is_quick(bench) ? QUICK_UNITS : UNITS };
	int r = bench_node_start(&scene.tierd, "2G", "4G");

	if (r == 0)
		r = tierd_connect(scene.tierd.socket, &scene.node);
	for (size_t i = 0; i < ARRAY_LENGTH(step_layouts) && r == 0; i++)
		if (bench_wants(bench, step_layouts[i].name))
			r = measure_bytes(bench, &scene, &step_layouts[i]);
	if (r == 0 && bench_wants(bench, "step_nvme_ratio"))
		r = measure_time(bench, &scene);
	if (r == 0 && kept_is_wanted(bench))
		r = kept_measure(bench, scene.node);
	if (r == 0 && step_wants_peer(bench))
		r = bench_step_peer(bench, &scene);
	scene.node = tierd_disconnect(scene.node);
	bench_node_stop(&scene.tierd);
	return r;
}

static int run(struct bench *bench)
{
	int r = is_wanted(bench) ? run_in_scene(bench) : 0;

	if (r < 0 || !bench_wants_any(bench, "fast_step_ratio", "step_cpu_per_gb"))
		return r;
	if (fio_is_installed())
		return bench_step_fast(bench);
	bench_skip(bench, "fast_step_ratio", FIO_MISSING);
	bench_skip(bench, "step_cpu_per_gb", FIO_MISSING);
	return 0;
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
