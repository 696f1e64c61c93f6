/* A step on a stand-in for a fast disk: over the time in which fio reads and writes as much there, or in
 * which the processors do what it takes of them, whichever is longer; and what it takes of them, but for the
 * optimizer's arithmetic. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/cleanup.h"
#include "common/simd.h"
#include "offload/optimizer/optimizer.h"
#include "tests/bench/standin.h"
#include "tests/bench/step.h"

#define LIMIT 1.15
#define SECONDS_LIMIT 0.15
#define MAX_STEPS 64
#define ELEMENTS ((size_t)1 << 18) /* as many as a worker updates at once: they stay in a cache */
#define TURNS 9
#define BYTES_PER_ELEMENT 24 /* read and written */

struct fast {
	struct standin standin;
	struct step_scene scene;
	double byte_seconds[MAX_STEPS]; /* of a processor, in each step, with the arithmetic */
	unsigned steps;
};

static double thread_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Seconds of a processor for an element of AdamW, where its arrays are in a cache. */
static double arithmetic_seconds(void)
{
	const struct optimizer *optimizer = optimizer_find("adamw", simd_level());
	const struct optimizer_group group = { 1e-4f, 0.9f, 0.999f, 1e-8f, 0.01f, 0 };
	char *memory = aligned_alloc(4096, 4 * ELEMENTS * sizeof(float));
	struct optimizer_constants constants;
	struct optimizer_arrays arrays = { 0 };
	double seconds[TURNS];

	if (!memory)
		return 0;
	for (size_t i = 0; i < 4 * ELEMENTS; i++)
		((float *)(void *)memory)[i] = 1e-3f;
	optimizer_set(optimizer, &group, 1e-4, 10, 1.0f, &constants);
	arrays.parameter = memory;
	arrays.master = memory + 2 * ELEMENTS;
	arrays.gradient = (float *)(void *)(memory + 4 * ELEMENTS);
	arrays.slots[0] = memory + 8 * ELEMENTS;
	arrays.slots[1] = memory + 12 * ELEMENTS;
	for (unsigned turn = 0; turn < TURNS; turn++) {
		double begin = thread_seconds();

		optimizer->kernels[MOMENTS_FP32][MASTER_SPLIT](&constants, ELEMENTS, &arrays);
		seconds[turn] = thread_seconds() - begin;
	}
	free(memory);
	return bench_median(seconds, TURNS) / ELEMENTS;
}

static double run_step(void *context, double seconds)
{
	struct fast *fast = context;
	struct step_cost cost;
	int r = step_take(&fast->scene, &cost);

	if (r < 0)
		return r;
	if (fast->steps < MAX_STEPS)
		fast->byte_seconds[fast->steps++] = cost.late_processor_seconds / cost.late_bytes;
	return cost.late_bytes / cost.late_seconds;
}

static double run_bound(void *context, double seconds)
{
	struct fast *fast = context;
	double rate = standin_fio_run(&fast->standin, &fast->scene.fio, seconds);

	return rate < 0 ? rate
			: standin_bound(&fast->standin, rate,
					fast->steps ? fast->byte_seconds[fast->steps - 1] : 0);
}

static int record_seconds(struct bench *bench, struct fast *fast)
{
	double moved = bench_median(fast->byte_seconds, fast->steps) * 1e9;
	double arithmetic = arithmetic_seconds() * 1e9 / BYTES_PER_ELEMENT;

	printf("step_cpu_per_gb: %.3f s, of which %.3f s are the optimizer's arithmetic\n", moved,
	       arithmetic);
	return bench_record(bench, "step_cpu_per_gb", moved - arithmetic, "s", SECONDS_LIMIT);
}

static int measure(struct bench *bench, struct fast *fast)
{
	struct step_scene *scene = &fast->scene;
	const struct bench_comparison comparison = { .name = "fast_step_ratio",
						     .bound = BENCH_AT_MOST,
						     .limit = LIMIT,
						     .unit = "MB/s",
						     .scale = 1e6,
						     .ours = { run_step, fast },
						     .theirs = { run_bound, fast } };
	int r = bench_node_start(&scene->tierd, "2G", "2G");

	if (r == 0)
		r = tierd_connect(scene->tierd.socket, &scene->node);
	if (r == 0)
		r = fio_make_file(&scene->fio, scene->tierd.disk);
	if (r == 0)
		r = fio_find_depth(&scene->fio, FIO_STAGING_MIB, bench_is_quick(bench) ? 0.1 : 1);
	if (r == 0)
		r = step_open_job(scene, &step_layouts[STEP_EXACT]);
	if (r == 0)
		r = step_warm_up(scene);
	if (r == 0)
		r = run_step(fast, 0) < 0 ? -EIO : 0;
	if (r == 0)
		r = bench_compare(bench, &comparison);
	return r < 0 ? r : record_seconds(bench, fast);
}

int bench_step_fast(struct bench *bench)
{
	struct fast fast = { .scene = { .tierd = BENCH_NODE_INIT,
					.fio.direction = "readwrite",
					.units = bench_is_quick(bench) ? 8 : 48 } };
	const char *why;
	int r = standin_open(&fast.standin, &why);

	if (r < 0) {
		bench_skip(bench, "fast_step_ratio", why);
		bench_skip(bench, "step_cpu_per_gb", why);
		return 0;
	}
	r = measure(bench, &fast);
	tierd_disconnect(fast.scene.node);
	bench_node_stop(&fast.scene.tierd);
	standin_close(&fast.standin);
	return r;
}
