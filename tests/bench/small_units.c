/* What many small units cost: a step of a job of 4,096 of 2 KiB (gathers, gradients, pushes, the update),
 * over that of a job of as many bytes in one unit. All of both lies in host memory, and nothing of it is
 * durable: what is left is what the library and the daemon do for each unit. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/tierd.h"
#include "common/clock.h"
#include "tests/bench/bench.h"
#include "tests/bench/node.h"

#define NAME "small_units_ratio"
#define UNITS 4096
#define UNIT_ELEMENTS 1024 /* of bf16 */
#define BUFFERS 16	   /* of a unit's gradients */

struct side {
	struct tierd_job *job;
	uint32_t units;
	uint64_t elements; /* of each */
};

static int open_job(struct tierd_node *node, const char *name, struct side *side)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;

	options.name = name;
	options.parameter_placement = options.optimizer_placement = TIERD_PLACE_HOST;
	options.durability = TIERD_DURABILITY_NONE;
	options.gradient_buffers = side->units > 1 ? BUFFERS : 0;
	return bench_job_open(node, &options,
			      &(struct bench_units){ .count = side->units, .elements = side->elements },
			      &side->job);
}

static int train_unit(const struct side *side, uint32_t unit)
{
	struct tierd_view parameters, gradients;
	int r = tierd_gather(side->job, unit, &parameters);

	if (r == 0)
		r = tierd_gradients(side->job, unit, &gradients);
	if (r < 0)
		return r;
	const uint16_t *values = tierd_at(&parameters, 0);
	uint16_t *sums = tierd_at(&gradients, 0);

	/* What a trainer does with them is as little as can be. */
	for (uint64_t i = 0; i < side->elements; i++)
		sums[i] = BENCH_GRADIENT | (values[i] & 0x8000);
	r = tierd_push(side->job, unit);
	return r < 0 ? r : tierd_release(side->job, unit);
}

static int train_step(const struct side *side)
{
	struct tierd_rates rates = TIERD_RATES_INIT;
	int r = 0;

	rates.learning_rate = 1e-4f;
	for (uint32_t unit = 0; unit < side->units && r == 0; unit++)
		r = train_unit(side, unit);
	return r < 0 ? r : tierd_step(side->job, &rates, NULL);
}

static double run_steps(void *context, double seconds)
{
	const struct side *side = context;
	uint64_t start = clock_now_ns(), end;
	unsigned steps = 0;

	do {
		int r = train_step(side);

		if (r < 0) {
			fprintf(stderr, NAME ": %s\n", tierd_message());
			return r;
		}
		steps++;
		end = clock_now_ns();
	} while ((double)(end - start) < seconds * 1e9);
	return steps / ((double)(end - start) / 1e9);
}

static int measure(struct bench *bench, struct tierd_node *node)
{
	struct side small = { .units = UNITS, .elements = UNIT_ELEMENTS };
	struct side large = { .units = 1, .elements = (uint64_t)UNITS * UNIT_ELEMENTS };
	const struct bench_comparison comparison = { .name = NAME,
						     .bound = BENCH_AT_MOST,
						     .unit = "steps/s",
						     .scale = 1,
						     .ours = { run_steps, &small },
						     .theirs = { run_steps, &large } };
	int r = open_job(node, "small", &small);

	if (r == 0)
		r = open_job(node, "large", &large);
	return r < 0 ? r : bench_compare(bench, &comparison);
}

static int run(struct bench *bench)
{
	struct bench_node tierd = BENCH_NODE_INIT;
	struct tierd_node *node = NULL;
	int r;

	if (!bench_wants(bench, NAME))
		return 0;
	r = bench_node_start(&tierd, "1G", "1G");

	if (r == 0)
		r = tierd_connect(tierd.socket, &node);
	if (r == 0)
		r = measure(bench, node);
	tierd_disconnect(node);
	bench_node_stop(&tierd);
	return r;
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
