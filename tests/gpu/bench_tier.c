/* Units that a real tierd keeps on a GPU: what a gather costs that finds its unit there, and how fast units
 * come from NVMe, over the slower of fio and a plain copy from pinned memory. */
#include <errno.h>
#include <stdio.h>
#include <time.h>

#include "client/tierd.h"
#include "common/size.h"
#include "tests/bench/bench.h"
#include "tests/bench/fio.h"
#include "tests/bench/node.h"
#include "tests/gpu/hardware.h"
#include "tests/gpu/plain_copy.h"

#define PAIRS 65536
#define QUICK_PAIRS 256
#define NS_LIMIT 100

#define UNIT_ELEMENTS (UINT64_C(8) << 20)
#define UNIT_BYTES (2 * UNIT_ELEMENTS)
#define UNITS 96
#define QUICK_UNITS 16
#define HOST_UNITS 8
#define GPU_UNITS 4
#define NVME_LIMIT 0.90
#define SETTLE_NS UINT64_C(50000000)
#define PROBE_SECONDS 0.5

struct place {
	struct bench_node tierd;
	struct tierd_node *node;
	struct tierd_job *job;
	struct driver_stream *stream;
	struct fio_job fio;
	unsigned units;
	uint32_t next;
	double copy_rate;
};

static int open_job(struct place *place, const struct tierd_job_options *options,
		    const struct bench_units *units)
{
	struct tierd_job_state state;
	int r = bench_job_join(place->tierd.socket, options, units, &place->node, &place->job);

	if (r == 0)
		r = tierd_job_state(place->job, &state);
	if (r == 0 && state.gpu_bytes == 0) {
		struct tierd_view view;

		/* It says why. */
		r = tierd_gather_on(place->job, 0, place->stream, &view);
		fprintf(stderr, "%s: %s\n", options->name, tierd_message());
	}
	return r;
}

static void close_job(struct place *place)
{
	hardware_expect(hardware_driver.stream_synchronize(place->stream));
	if (place->job)
		(void)tierd_job_close(place->job);
	tierd_disconnect(place->node);
	place->job = NULL;
	place->node = NULL;
}

static int gather_pair(struct place *place, uint32_t unit)
{
	struct tierd_view view;
	int r = tierd_gather_on(place->job, unit, place->stream, &view);

	return r < 0 ? r : tierd_release_on(place->job, unit, place->stream);
}

/* ---- Units that are there ---- */

static double processor_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int measure_pairs(struct place *place, unsigned pairs, double *ret_ns)
{
	/* It comes there. */
	int r = gather_pair(place, 0);
	double start = processor_ns();

	for (unsigned i = 0; r == 0 && i < pairs; i++)
		r = gather_pair(place, 0);
	*ret_ns = (processor_ns() - start) / pairs;
	return r;
}

static int bench_gathers(struct bench *bench, struct place *place)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	const struct bench_units units = { .count = 1, .elements = UINT64_C(1) << 20 };
	double runs[9];
	int r;

	options.name = "gathers";
	options.gpu = 0;
	r = open_job(place, &options, &units);
	for (unsigned i = 0; r == 0 && i < 9; i++)
		r = measure_pairs(place, bench_is_quick(bench) ? QUICK_PAIRS : PAIRS, &runs[i]);
	close_job(place);
	return r < 0 ? r
		     : bench_record(bench, hardware_result("gpu_gather_ns"), bench_median(runs, 9), "ns",
				    NS_LIMIT);
}

/* ---- Units that come from NVMe ---- */

static int gather_many(struct place *place, unsigned count)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < count; i++)
		r = gather_pair(place, place->next++ % place->units);
	return r;
}

static int read_bytes(struct place *place, uint64_t *ret_bytes)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	int r = tierd_statistics(place->job, &statistics);

	if (r == 0)
		*ret_bytes = statistics.job_gather_read_bytes;
	return r;
}

/* Until tierd reads nothing any more: the disk is fio's. */
static int settle(struct place *place)
{
	uint64_t before = 0, after = 1;
	int r = 0;

	while (r == 0 && before != after) {
		r = read_bytes(place, &before);
		clock_sleep_ns(SETTLE_NS);
		if (r == 0)
			r = read_bytes(place, &after);
	}
	return r;
}

/* What was found in memory did not come from NVMe: the bytes that count were both gathered and read. A rate
 * is of copies that have ended. */
static double gather_for(struct place *place, double seconds)
{
	uint64_t start = clock_now_ns(), gathered = 0, before = 0, after = 0;
	double duration;
	int r = read_bytes(place, &before);

	do {
		if (r == 0)
			r = gather_many(place, 1);
		gathered += UNIT_BYTES;
	} while (r == 0 && bench_seconds_since(start) < seconds);
	hardware_expect(hardware_driver.stream_synchronize(place->stream));
	duration = bench_seconds_since(start);
	if (r == 0)
		r = read_bytes(place, &after);
	if (r < 0)
		return r;
	return (double)(gathered < after - before ? gathered : after - before) / duration;
}

/* First what prefetching has brought meanwhile. */
static double run_gathers(void *context, double seconds)
{
	struct place *place = context;
	int r = gather_many(place, HOST_UNITS + GPU_UNITS);
	double rate = r < 0 ? r : gather_for(place, seconds);

	r = settle(place);
	return rate < 0 || r == 0 ? rate : r;
}

static double run_bound(void *context, double seconds)
{
	struct place *place = context;
	double rate = fio_run(&place->fio, seconds);

	return rate < place->copy_rate ? rate : place->copy_rate;
}

static int open_nvme_job(struct bench *bench, struct place *place)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	int r = fio_make_file(&place->fio, place->tierd.disk);

	if (r == 0)
		r = fio_find_depth(&place->fio, FIO_ARENA_MIB, bench_is_quick(bench) ? 0.1 : PROBE_SECONDS);
	if (r < 0)
		return r;
	place->copy_rate = plain_copy_rate(false, bench_is_quick(bench) ? 0.1 : PROBE_SECONDS);
	place->units = bench_is_quick(bench) ? QUICK_UNITS : UNITS;
	options.name = "nvme";
	options.parameter_placement = TIERD_PLACE_NVME;
	options.host_budget = HOST_UNITS * UNIT_BYTES;
	options.gpu = 0;
	options.gpu_budget = GPU_UNITS * UNIT_BYTES;
	r = open_job(
		place, &options,
		&(struct bench_units){ .count = place->units, .elements = UNIT_ELEMENTS, .is_frozen = true });
	if (r == 0)
		r = gather_many(place, place->units);
	return r == 0 ? bench_step(place->job, TIERD_DONE) : r; /* ends the pass: its order is learned */
}

static int bench_nvme(struct bench *bench, struct place *place)
{
	int r = open_nvme_job(bench, place);

	if (r == 0)
		r = bench_compare(bench, &(struct bench_comparison){
						 .name = hardware_result("gpu_nvme_ratio"),
						 .bound = BENCH_AT_LEAST,
						 .limit = NVME_LIMIT,
						 .unit = "MiB/s",
						 .scale = (double)MIB,
						 .ours = { run_gathers, place },
						 .theirs = { run_bound, place },
						 .seconds = 0.5,
					 });
	if (r < 0)
		fprintf(stderr, "%s\n", tierd_message());
	close_job(place);
	return r;
}

/* ---- All of it ---- */

static int run_all(struct bench *bench)
{
	struct place place = { .tierd = BENCH_NODE_INIT, .fio.direction = "read" };
	int r;

	hardware_enter();
	hardware_expect(hardware_driver.stream_create(&place.stream, DRIVER_NO_STREAM_0));
	printf("%s:\n", hardware_name());
	r = bench_node_start(&place.tierd, "1G", "4G");
	if (r == 0 && bench_wants(bench, "gpu_gather_ns"))
		r = bench_gathers(bench, &place);
	if (!fio_is_installed())
		bench_skip(bench, "gpu_nvme_ratio", FIO_MISSING);
	else if (r == 0 && bench_wants(bench, "gpu_nvme_ratio"))
		r = bench_nvme(bench, &place);
	bench_node_stop(&place.tierd);
	return r;
}

static int run(struct bench *bench)
{
	const char *why = hardware_find();

	if (!why)
		return run_all(bench);
	bench_skip(bench, "gpu_gather_ns", why);
	bench_skip(bench, "gpu_nvme_ratio", why);
	return 0;
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
