/* Jobs that are alike but for the memory that they may use, which take turns: ten steps and a commit each. Of
 * one whose fraction f of the state is kept these take T(f); they are to take no longer than the bytes that
 * are left, ((1 - f) (r + w) + f w / 10) / (r + w) of T(0). */
#include "tests/bench/kept.h"

#include <errno.h>
#include <stdio.h>

#include "common/cleanup.h"
#include "tests/bench/bench.h"
#include "tests/bench/stepper.h"

#define UNITS 16
#define STEPS 10
#define ROUNDS 9
#define QUICK_ROUNDS 2
#define LIMIT 1.10
#define RATIO "step_kept_ratio"
#define AN_HOUR 3600

/* Of a parameter in host memory, the bytes that a step reads, its remainder and moments, and writes. */
#define READ_BYTES 10.0
#define WRITTEN_BYTES 12.0

/* The results beside the ratio are for a picture, relative to a fraction of 0. */
static const struct kept {
	double fraction;
	const char *job, *time, *bytes;
} kept[] = {
	{ 0, "kept0", "step_kept_0_time", "step_kept_0_bytes" },
	{ 0.25, "kept25", "step_kept_0.25_time", "step_kept_0.25_bytes" },
	{ 0.5, "kept50", "step_kept_0.5_time", "step_kept_0.5_bytes" },
	{ 0.75, "kept75", "step_kept_0.75_time", "step_kept_0.75_bytes" },
};
#define FRACTIONS ARRAY_LENGTH(kept)
#define TURNS (FRACTIONS + 1) /* of a round: nothing is kept in the first and in the last */

bool kept_is_wanted(const struct bench *bench)
{
	for (size_t i = 0; i < FRACTIONS; i++)
		if (bench_wants(bench, kept[i].time) || bench_wants(bench, kept[i].bytes))
			return true;
	return bench_wants(bench, RATIO);
}

static double expected(double fraction)
{
	double all = READ_BYTES + WRITTEN_BYTES;

	return ((1 - fraction) * all + fraction * WRITTEN_BYTES / STEPS) / all;
}

static int open_jobs(struct tierd_node *node, struct stepper *steppers)
{
	struct stepper_options options = {
		.name = kept[0].job, .units = UNITS, .parameters_on = TIERD_PLACE_HOST, .durability = AN_HOUR
	};
	uint64_t least;
	int r = stepper_least(node, &options, &least);

	for (size_t i = 0; i < FRACTIONS && r == 0; i++) {
		double bytes = kept[i].fraction * READ_BYTES * UNITS * STEPPER_ELEMENTS;

		options.name = kept[i].job;
		options.host_budget = least + (uint64_t)bytes;
		r = stepper_open(node, &options, &steppers[i]);
	}
	return r;
}

/* Returns what they took, from the closing of each until it was applied, and the last one durable. */
static double take_steps(const struct stepper *stepper)
{
	double seconds = 0, one;

	for (int i = 0; i < STEPS; i++) {
		int r = stepper_push(stepper);

		if (r == 0)
			r = stepper_step(stepper, i + 1 < STEPS ? TIERD_DONE : TIERD_DURABLE, &one);
		if (r < 0) {
			fprintf(stderr, "%s: %s\n", RATIO, tierd_message());
			return r;
		}
		seconds += one;
	}
	return seconds;
}

/* In order, or in its reverse. */
static int take_turns(const struct stepper *steppers, bool is_reversed, double *ret_seconds)
{
	for (size_t i = 0; i < TURNS; i++) {
		size_t turn = is_reversed ? TURNS - 1 - i : i;

		ret_seconds[turn] = take_steps(&steppers[turn % FRACTIONS]);
		if (ret_seconds[turn] < 0)
			return (int)ret_seconds[turn];
	}
	return 0;
}

static int run_rounds(struct bench *bench, const struct stepper *steppers, unsigned rounds,
		      double (*ratios)[ROUNDS], double *selves)
{
	for (unsigned i = 0; i < rounds; i++) {
		double seconds[TURNS];
		int r = take_turns(steppers, bench_toss(bench), seconds);

		if (r < 0)
			return r;
		double first = seconds[0], last = seconds[TURNS - 1];

		selves[i] = last > first ? last / first : first / last;
		seconds[0] = (first + last) / 2;
		for (size_t f = 0; f < FRACTIONS; f++)
			ratios[f][i] = seconds[f] / seconds[0] / expected(kept[f].fraction);
	}
	return 0;
}

static int record_one(struct bench *bench, const struct kept *one, double ratio)
{
	double bytes = expected(one->fraction);
	int r;

	printf("%-24s kept fraction %.2f: %.3f of what its bytes take\n", RATIO, one->fraction, ratio);
	r = bench_record(bench, one->bytes, bytes, "times", 0);
	return r < 0 ? r : bench_record(bench, one->time, ratio * bytes, "times", 0);
}

static int record(struct bench *bench, unsigned rounds, double (*ratios)[ROUNDS], double *selves)
{
	double worst = 0;

	for (size_t f = 0; f < FRACTIONS; f++) {
		double ratio = bench_median(ratios[f], rounds);
		int r = record_one(bench, &kept[f], ratio);

		if (r < 0)
			return r;
		worst = f > 0 && ratio > worst ? ratio : worst;
	}
	return bench_record_result(bench, &(struct bench_result){ .name = RATIO,
								  .value = worst,
								  .unit = "ratio",
								  .limit = LIMIT,
								  .spread = bench_median(selves, rounds) });
}

int kept_measure(struct bench *bench, struct tierd_node *node)
{
	unsigned rounds = bench_is_quick(bench) ? QUICK_ROUNDS : ROUNDS;
	struct stepper steppers[FRACTIONS] = { { NULL } };
	double ratios[FRACTIONS][ROUNDS], selves[ROUNDS], seconds[TURNS];
	int r = open_jobs(node, steppers);

	/* The first steps fill what is kept. */
	if (r == 0)
		r = take_turns(steppers, false, seconds);
	if (r == 0)
		r = run_rounds(bench, steppers, rounds, ratios, selves);
	if (r == 0)
		r = record(bench, rounds, ratios, selves);
	for (size_t i = 0; i < FRACTIONS; i++)
		if (steppers[i].job)
			tierd_job_close(steppers[i].job);
	return r;
}
