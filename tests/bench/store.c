/* What it costs that steps survive the daemon: commits beside a trainer, and the way back. */
#include "tests/bench/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/size.h"

#define UNITS 342 /* 1 GiB of parameters and moments */
#define QUICK_UNITS 96
#define UNIT_ELEMENTS (UINT64_C(1) << 18)
#define UNIT_BYTES (3 * UNIT_ELEMENTS * sizeof(float))
#define ARENA_UNITS 32
#define RECONNECT_MS 60000

/* ---- Scene ---- */

static int open_job(struct store_scene *scene)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;

	options.name = "store";
	options.parameter_placement = options.optimizer_placement = TIERD_PLACE_NVME;
	/* The sums of its gradients have to lie there, too. */
	options.host_budget = (scene->units + ARENA_UNITS) * UNIT_ELEMENTS * sizeof(float);
	return bench_job_open(scene->node, &options,
			      &(struct bench_units){ .count = scene->units,
						     .elements = UNIT_ELEMENTS,
						     .format = TIERD_FP32 },
			      &scene->job);
}

int store_scene_join(struct store_scene *scene)
{
	struct tierd_connect_options options = TIERD_CONNECT_OPTIONS_INIT;
	int r;

	options.socket_path = scene->tierd.socket;
	options.reconnect_ms = RECONNECT_MS;
	r = tierd_connect_with(&options, &scene->node);
	if (r < 0)
		fprintf(stderr, "store: %s\n", tierd_message());
	return r < 0 ? r : open_job(scene);
}

int store_scene_open(struct store_scene *scene, bool is_quick)
{
	int r;

	*scene = (struct store_scene){ .tierd = BENCH_NODE_INIT };
	scene->units = is_quick ? QUICK_UNITS : UNITS;
	r = bench_node_start(&scene->tierd, "1G", "4G");
	return r < 0 ? r : store_scene_join(scene);
}

void store_scene_close(struct store_scene *scene)
{
	scene->node = tierd_disconnect(scene->node);
	bench_node_stop(&scene->tierd);
}

uint64_t store_scene_bytes(const struct store_scene *scene)
{
	return scene->units * UNIT_BYTES;
}

/* ---- Trainer ---- */

static int push(struct tierd_job *job, uint32_t unit)
{
	struct tierd_view parameters, gradients;
	int r = tierd_gather(job, unit, &parameters);

	if (r == 0)
		r = tierd_gradients(job, unit, &gradients);
	if (r == 0) {
		*(float *)tierd_at(&gradients, 0) = 1;
		r = tierd_push(job, unit);
	}
	return r < 0 ? r : tierd_release(job, unit);
}

int store_scene_train(struct store_scene *scene, struct tierd_ticket **ret_ticket)
{
	struct tierd_rates rates = TIERD_RATES_INIT;
	struct tierd_ticket *ticket = NULL;
	int r = 0;

	rates.learning_rate = 1e-3f;
	for (uint32_t unit = 0; unit < scene->units && r == 0; unit++)
		r = push(scene->job, unit);
	if (r == 0)
		r = tierd_step(scene->job, &rates, &ticket);
	if (r == 0)
		r = tierd_ticket_wait(ticket, TIERD_DONE, -1);
	if (r == 0)
		*ret_ticket = ticket;
	else
		tierd_ticket_free(ticket);
	if (r < 0)
		fprintf(stderr, "store: %s\n", tierd_message());
	return r;
}

int store_scene_train_durably(struct store_scene *scene, double *ret_ms)
{
	struct tierd_ticket *ticket = NULL;
	int r = store_scene_train(scene, &ticket);
	uint64_t start = clock_now_ns();

	if (r == 0)
		r = tierd_ticket_wait(ticket, TIERD_DURABLE, -1);
	*ret_ms = bench_ms_since(start);
	tierd_ticket_free(ticket);
	return r;
}

int store_scene_gather(struct store_scene *scene, uint32_t unit, double *ret_ms)
{
	uint64_t start = clock_now_ns();
	struct tierd_view view;
	int r = tierd_gather(scene->job, unit, &view);

	*ret_ms = bench_ms_since(start);
	if (r == 0)
		r = tierd_release(scene->job, unit);
	if (r < 0)
		fprintf(stderr, "store: %s\n", tierd_message());
	return r;
}

/* ---- A large one ---- */

static int expect_all_written(struct tierd_job *job, unsigned units)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	int r = tierd_statistics(job, &statistics);

	if (r < 0)
		return r;
	return statistics.job_initialize_written_bytes >= units * STORE_LARGE_BYTES ? 0 : -ENODATA;
}

int store_make_large(struct tierd_node *node, const struct tierd_job_options *options, unsigned units,
		     struct tierd_job **ret_job)
{
	int r = bench_job_open(node, options,
			       &(struct bench_units){ .count = units,
						      .elements = STORE_LARGE_ELEMENTS,
						      .format = TIERD_FP32,
						      .is_frozen = true },
			       ret_job);

	if (r < 0)
		return r;
	r = expect_all_written(*ret_job, units);
	if (r == 0)
		r = bench_step(*ret_job, TIERD_DURABLE);
	if (r < 0)
		fprintf(stderr, "%s: %s\n", options->name, tierd_message());
	return r;
}

/* ---- All of them ---- */

static int run_in_scene(struct bench *bench)
{
	struct store_scene scene;
	int r = store_scene_open(&scene, bench_is_quick(bench));

	if (r == 0 && bench_wants(bench, "map_bytes_ratio"))
		r = bench_map_bytes(bench, &scene);
	if (r == 0 && bench_wants_any(bench, "commit_stall_ms", "commit_wait_ms"))
		r = bench_commit(bench, &scene);
	if (r == 0 && bench_wants(bench, "recover_ms"))
		r = bench_recover(bench, &scene);
	store_scene_close(&scene);
	return r;
}

static int run(struct bench *bench)
{
	int r = 0;

	if (bench_wants_any(bench, "map_bytes_ratio", "commit_stall_ms", "commit_wait_ms", "recover_ms"))
		r = run_in_scene(bench);
	if (r == 0 && bench_wants(bench, "open_ms_10gib"))
		r = bench_open(bench);
	if (r == 0 && bench_wants_any(bench, "snapshot_ms", "snapshot_growth_ms"))
		r = bench_snapshot(bench);
	return r;
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
