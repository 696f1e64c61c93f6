/* The same gathers from a stand-in for a fast disk, and from two of them: over what fio reads there, or what
 * the processors allow, whichever is less; and what they take of the processors. */
#include <errno.h>

#include "common/cleanup.h"
#include "tests/bench/gather_cold.h"
#include "tests/bench/standin.h"

#define LIMIT 0.90
#define SECONDS_LIMIT 0.12

struct fast {
	struct standin standin;
	struct cold one, two; /* on one disk, and on both */
};

static double seconds_of(const struct cold *cold)
{
	return cold->runs > 0 ? cold->all_byte_seconds[cold->runs - 1] : 0;
}

static double run_bound(void *context, double seconds)
{
	struct fast *fast = context;
	double rate = standin_fio_run(&fast->standin, &fast->one.fio, seconds);

	return rate < 0 ? rate : standin_bound(&fast->standin, rate, seconds_of(&fast->one));
}

/* Twice what one disk gives. */
static double run_bound_of_two(void *context, double seconds)
{
	struct fast *fast = context;
	double rate = standin_fio_run(&fast->standin, &fast->one.fio, seconds);

	if (rate >= 0)
		rate = cold_run(&fast->one, seconds);
	return rate < 0 ? rate : standin_bound(&fast->standin, 2 * rate, seconds_of(&fast->two));
}

static int compare(struct bench *bench, const char *name, struct cold *ours, struct fast *fast,
		   double (*run_theirs)(void *context, double seconds))
{
	return bench_compare(bench, &(struct bench_comparison){ .name = name,
								.bound = BENCH_AT_LEAST,
								.limit = LIMIT,
								.unit = "MB/s",
								.scale = 1e6,
								.ours = { cold_run, ours },
								.theirs = { run_theirs, fast } });
}

static int measure_one(struct bench *bench, struct fast *fast)
{
	int r = compare(bench, "fast_gather_ratio", &fast->one, fast, run_bound);

	return r < 0 ? r
		     : bench_record(bench, "gather_cpu_per_gb",
				    1e9 * bench_median(fast->one.byte_seconds, fast->one.runs), "s",
				    SECONDS_LIMIT);
}

static int measure_two(struct bench *bench, struct fast *fast)
{
	int r = cold_open(&fast->two, fast->standin.disks[1]);

	/* The bound is of a run that there has been. */
	if (r == 0)
		r = cold_run(&fast->two, 0) < 0 ? -EIO : 0;
	if (r == 0)
		r = compare(bench, "fast_paths_ratio", &fast->two, fast, run_bound_of_two);
	cold_close(&fast->two);
	return r;
}

int bench_gather_fast(struct bench *bench)
{
	static const char *const names[] = { "fast_gather_ratio", "gather_cpu_per_gb", "fast_paths_ratio" };
	struct fast fast = { .one.next = 0 };
	const char *why;
	int r = standin_open(&fast.standin, &why);

	for (size_t i = 0; r < 0 && i < ARRAY_LENGTH(names); i++)
		bench_skip(bench, names[i], why);
	if (r < 0)
		return 0;
	r = cold_open(&fast.one, NULL);
	if (r == 0)
		r = cold_run(&fast.one, 0) < 0 ? -EIO : 0;
	if (r == 0 && bench_wants_any(bench, "fast_gather_ratio", "gather_cpu_per_gb"))
		r = measure_one(bench, &fast);
	if (r == 0 && bench_wants(bench, "fast_paths_ratio"))
		r = measure_two(bench, &fast);
	cold_close(&fast.one);
	standin_close(&fast.standin);
	return r;
}
