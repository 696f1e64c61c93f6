/* Units that lie on NVMe, gathered in an order that tierd has learned, over fio reading a file beside them;
 * and how many processors it takes the daemon to read and verify them.
 *
 * While fio runs, prefetch would fill the arena for free. So each run first gathers as much as the arena
 * holds, and only then looks at the clock; after it the reads in flight are waited for, so that fio has the
 * disk for itself. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "common/size.h"
#include "tests/bench/fio.h"
#include "tests/bench/gather.h"
#include "tests/bench/node.h"

#define UNIT_ELEMENTS (UINT64_C(8) << 20)
#define UNIT_BYTES (2 * UNIT_ELEMENTS)
#define UNITS 96
#define BUDGET (256 * MIB)
#define ARENA_UNITS ((uint32_t)(BUDGET / UNIT_BYTES))
#define LIMIT 0.95
#define CORES_LIMIT 0.5
#define MAX_RUNS 64
#define SETTLE_MS 50
#define DEPTH_SECONDS 0.5

struct cold {
	struct bench_node tierd;
	struct tierd_node *node;
	struct tierd_job *job;
	struct fio_job fio;
	uint32_t next;
	double cores[MAX_RUNS]; /* of each run, processors at work for the daemon */
	unsigned runs;
};

static int gather_many(struct cold *cold, uint32_t count)
{
	int r = 0;

	for (uint32_t i = 0; i < count && r == 0; i++)
		r = bench_gather_unit(cold->job, cold->next++ % UNITS);
	return r;
}

static int read_bytes(struct cold *cold, uint64_t *ret_bytes)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	int r = tierd_statistics(cold->job, &statistics);

	if (r == 0)
		*ret_bytes = statistics.job_gather_read_bytes;
	return r;
}

/* Until tierd reads nothing any more. */
static int settle(struct cold *cold)
{
	uint64_t before = 0, after = 1;
	int r = 0;

	while (r == 0 && before != after) {
		r = read_bytes(cold, &before);
		clock_sleep_ns(SETTLE_MS * UINT64_C(1000000));
		if (r == 0)
			r = read_bytes(cold, &after);
	}
	return r;
}

/* What was found in the arena was not cold: the bytes that count are those that were both gathered and read.
 */
static double gather_for(struct cold *cold, double seconds)
{
	uint64_t start = clock_now_ns(), stop = start + (uint64_t)(seconds * 1e9);
	uint64_t gathered = 0, before = 0, after = 0, busy = 0, busy_before = 0, duration;
	int r = read_bytes(cold, &before);

	if (r == 0)
		r = bench_node_processor_ns(&cold->tierd, &busy_before);
	while (r == 0 && clock_now_ns() < stop) {
		r = bench_gather_unit(cold->job, cold->next++ % UNITS);
		gathered += UNIT_BYTES;
	}
	duration = clock_now_ns() - start;
	if (r == 0)
		r = bench_node_processor_ns(&cold->tierd, &busy);
	if (r == 0)
		r = read_bytes(cold, &after);
	if (r < 0)
		return r;
	if (cold->runs < MAX_RUNS)
		cold->cores[cold->runs++] = (double)(busy - busy_before) / (double)duration;
	if (gathered > after - before)
		gathered = after - before;
	return (double)gathered / ((double)duration / 1e9);
}

static double run_gathers(void *context, double seconds)
{
	struct cold *cold = context;
	double rate;
	int r = gather_many(cold, ARENA_UNITS);

	rate = r < 0 ? r : gather_for(cold, seconds);
	r = settle(cold);
	return rate < 0 || r == 0 ? rate : r;
}

static int open_job(struct cold *cold)
{
	const struct gather_job wanted = { "cold", BUDGET, UNITS, UNIT_ELEMENTS, true };
	int r = gather_open(&cold->tierd, &wanted, &cold->node, &cold->job);

	if (r == 0)
		r = gather_many(cold, UNITS);
	if (r == 0)
		r = bench_step(cold->job, TIERD_DONE); /* ends the pass: its order is learned */
	if (r < 0)
		fprintf(stderr, "%s\n", tierd_message());
	return r;
}

static int open_all(struct cold *cold)
{
	int r = bench_node_start(&cold->tierd, "512M", "4G");

	if (r == 0)
		r = fio_make_file(&cold->fio, cold->tierd.disk);
	if (r == 0)
		r = fio_find_depth(&cold->fio, DEPTH_SECONDS);
	return r < 0 ? r : open_job(cold);
}

static int record_cores(struct bench *bench, struct cold *cold)
{
	return bench_record(bench, "nvme_cpu_cores", bench_median(cold->cores, cold->runs), "cores",
			    CORES_LIMIT);
}

int bench_gather_cold(struct bench *bench)
{
	struct cold cold = { .tierd = BENCH_NODE_INIT, .fio.direction = "read" };
	struct bench_comparison comparison = {
		.name = "gather_cold_ratio",
		.bound = BENCH_AT_LEAST,
		.limit = LIMIT,
		.unit = "MiB/s",
		.scale = (double)MIB,
		.ours = { run_gathers, &cold },
		.theirs = { fio_run, &cold.fio },
	};
	int r = open_all(&cold);

	if (r == 0)
		r = bench_compare(bench, &comparison);
	if (r == 0)
		r = record_cores(bench, &cold);
	tierd_disconnect(cold.node);
	bench_node_stop(&cold.tierd);
	return r;
}
