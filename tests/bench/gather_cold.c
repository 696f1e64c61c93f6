/* Units that lie on NVMe, gathered in an order that tierd has learned, over fio reading where they lie;
 * and how many processors it takes the daemon to read and verify them.
 *
 * While fio runs, prefetch would fill the arena for free. So each run first gathers as much as the arena
 * holds, and only then looks at the clock; after it the reads in flight are waited for, so that fio has the
 * disk for itself. */
#include "tests/bench/gather_cold.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "common/size.h"

#define UNIT_ELEMENTS (UINT64_C(8) << 20)
#define UNIT_BYTES (2 * UNIT_ELEMENTS)
#define UNITS 48
#define BUDGET (256 * MIB)
#define ARENA_UNITS ((uint32_t)(BUDGET / UNIT_BYTES))
#define LIMIT 0.95
#define CORES_LIMIT 0.5
#define SETTLE_MS 50
#define DEPTH_SECONDS 0.5

static int gather_many(struct cold *cold, uint32_t count)
{
	int r = 0;

	for (uint32_t i = 0; i < count && r == 0; i++)
		r = bench_gather_unit(cold->job, cold->next++ % UNITS);
	return r;
}

static int read_bytes(const struct cold *cold, uint64_t *ret_bytes)
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

/* What has been read, and what processors have worked, since ever. */
struct counters {
	uint64_t now_ns, daemon_ns, bytes;
	double trainer_seconds;
};

static int count(const struct cold *cold, struct counters *ret_counters)
{
	struct timespec own;
	int r = read_bytes(cold, &ret_counters->bytes);

	if (r == 0)
		r = bench_node_processor_ns(&cold->tierd, &ret_counters->daemon_ns);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
	ret_counters->trainer_seconds = (double)own.tv_sec + (double)own.tv_nsec / 1e9;
	ret_counters->now_ns = clock_now_ns();
	return r;
}

static void note_run(struct cold *cold, const struct counters *from, const struct counters *to)
{
	double busy = (double)(to->daemon_ns - from->daemon_ns) / 1e9;
	double read = (double)(to->bytes - from->bytes);

	if (cold->runs == COLD_RUNS)
		return;
	cold->cores[cold->runs] = busy / ((double)(to->now_ns - from->now_ns) / 1e9);
	cold->byte_seconds[cold->runs] = busy / read;
	cold->all_byte_seconds[cold->runs] = (busy + to->trainer_seconds - from->trainer_seconds) / read;
	cold->runs++;
}

/* What was found in the arena was not cold: the bytes that count are those that were both gathered and read.
 */
static double gather_for(struct cold *cold, double seconds)
{
	uint64_t gathered = 0, read;
	struct counters from, to;
	int r = count(cold, &from);

	while (r == 0 && (double)(clock_now_ns() - from.now_ns) < seconds * 1e9) {
		r = bench_gather_unit(cold->job, cold->next++ % UNITS);
		gathered += UNIT_BYTES;
	}
	if (r == 0)
		r = count(cold, &to);
	if (r < 0)
		return r;
	note_run(cold, &from, &to);
	read = to.bytes - from.bytes;
	return (double)(gathered < read ? gathered : read) / ((double)(to.now_ns - from.now_ns) / 1e9);
}

double cold_run(void *context, double seconds)
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

int cold_open(struct cold *cold, const char *more_disk)
{
	int r;

	cold->tierd = (struct bench_node)BENCH_NODE_INIT;
	cold->fio.direction = "read";
	cold->tierd.more_disk = more_disk;
	r = bench_node_start(&cold->tierd, "512M", "2G");
	if (r == 0)
		r = open_job(cold);
	/* The job's own extents. */
	if (r == 0)
		r = fio_use_largest_file(&cold->fio, cold->tierd.disk);
	return r < 0 ? r : fio_find_depth(&cold->fio, FIO_ARENA_MIB, DEPTH_SECONDS);
}

void cold_close(struct cold *cold)
{
	cold->node = tierd_disconnect(cold->node);
	bench_node_stop(&cold->tierd);
}

static int record_cores(struct bench *bench, struct cold *cold)
{
	return bench_record(bench, "nvme_cpu_cores", bench_median(cold->cores, cold->runs), "cores",
			    CORES_LIMIT);
}

int bench_gather_cold(struct bench *bench)
{
	struct cold cold = { .next = 0 };
	struct bench_comparison comparison = {
		.name = "gather_cold_ratio",
		.bound = BENCH_AT_LEAST,
		.limit = LIMIT,
		.unit = "MiB/s",
		.scale = (double)MIB,
		.ours = { cold_run, &cold },
		.theirs = { fio_run, &cold.fio },
	};
	int r = cold_open(&cold, NULL);

	if (r == 0)
		r = bench_compare(bench, &comparison);
	if (r == 0)
		r = record_cores(bench, &cold);
	cold_close(&cold);
	return r;
}
