/* How much longer a daemon takes to start that finds the store of a large job: over one that finds nothing,
 * in turns. Every extent of the state has been written; it is not read to open it. */
#include <errno.h>
#include <stdio.h>
#include <sys/statvfs.h>

#include "common/size.h"
#include "tests/bench/store.h"

#define UNITS (10 * GIB / STORE_LARGE_BYTES)
#define QUICK_UNITS 4
#define STARTS 5
#define QUICK_STARTS 1
#define SAMPLES (2 * STARTS)
#define LIMIT_MS 1000

struct opening {
	struct bench_node full, empty;
	unsigned units, starts, counts[2];
	double samples[2][SAMPLES]; /* of empty, and of full */
};

static struct tierd_job_options job_options(void)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;

	options.name = "large";
	options.parameter_placement = options.optimizer_placement = TIERD_PLACE_NVME;
	options.host_budget = 4 * STORE_LARGE_BYTES;
	return options;
}

static int make_job(const struct opening *opening)
{
	struct tierd_job_options options = job_options();
	struct tierd_node *node = NULL;
	struct tierd_job *job;
	int r = tierd_connect(opening->full.socket, &node);

	if (r == 0)
		r = store_make_large(node, &options, opening->units, &job);
	tierd_disconnect(node);
	return r;
}

/* A daemon that finds nothing of it would listen early. */
static int expect_job(const struct opening *opening)
{
	struct tierd_job_options options = job_options();
	struct tierd_node *node = NULL;
	struct tierd_job *job;
	int r = tierd_connect(opening->full.socket, &node);

	options.mode = TIERD_RESUME;
	if (r == 0)
		r = tierd_job_open(node, &options, &job);
	if (r < 0)
		fprintf(stderr, "open: %s\n", tierd_message());
	tierd_disconnect(node);
	return r;
}

/* Two states are reserved; some of the disk stays free. */
static int fit(struct opening *opening)
{
	struct statvfs disk;
	uint64_t space;

	if (statvfs(opening->full.disk, &disk) < 0)
		return -errno;
	space = disk.f_bavail * disk.f_frsize / 5 * 2;
	if (space < opening->units * STORE_LARGE_BYTES)
		opening->units = (unsigned)(space / STORE_LARGE_BYTES);
	return opening->units > 0 ? 0 : -ENOSPC;
}

static int start(struct opening *opening, bool is_full)
{
	struct bench_node *tierd = is_full ? &opening->full : &opening->empty;
	uint64_t begin;
	int r;

	bench_node_kill(tierd);
	begin = clock_now_ns();
	r = bench_node_run(tierd);
	if (r == 0)
		r = bench_node_await(tierd);
	opening->samples[is_full][opening->counts[is_full]++] = bench_ms_since(begin);
	return r;
}

static int report(struct bench *bench, struct opening *opening)
{
	double *empty = opening->samples[0], *full = opening->samples[1];
	unsigned count = opening->counts[0];

	printf("open_ms_10gib: %.2f GiB; a daemon listens after %.1f ms (at most %.1f ms), without jobs "
	       "after "
	       "%.1f ms (%.1f ms)\n",
	       (double)(opening->units * STORE_LARGE_BYTES) / (double)GIB, bench_median(full, count),
	       bench_quantile(full, count, 1), bench_median(empty, count), bench_quantile(empty, count, 1));
	return bench_record(bench, "open_ms_10gib", bench_median(full, count) - bench_median(empty, count),
			    "ms", LIMIT_MS);
}

int bench_open(struct bench *bench)
{
	struct opening opening = { .full = BENCH_NODE_INIT, .empty = BENCH_NODE_INIT };
	int r = bench_node_start(&opening.full, "1G", "24G");

	opening.units = bench_is_quick(bench) ? QUICK_UNITS : UNITS;
	opening.starts = bench_is_quick(bench) ? QUICK_STARTS : STARTS;
	if (r == 0)
		r = fit(&opening);
	if (r == 0)
		r = make_job(&opening);
	if (r == 0)
		r = bench_node_start(&opening.empty, "1G", "24G");
	for (unsigned i = 0; i < 4 * opening.starts && r == 0; i++)
		r = start(&opening, i % 4 == 1 || i % 4 == 2);
	if (r == 0)
		r = expect_job(&opening);
	if (r == 0)
		r = report(bench, &opening);
	bench_node_stop(&opening.empty);
	bench_node_stop(&opening.full);
	return r;
}
