/* How long a snapshot takes: of a large job and of a small one in turns, because it is to be the same. Both
 * stand at a durable step, so it is one commit. What does not change costs nothing to keep, so all that are
 * taken have room. */
#include <errno.h>
#include <stdio.h>
#include <sys/statvfs.h>

#include "common/size.h"
#include "tests/bench/store.h"

#define UNITS (10 * GIB / STORE_LARGE_BYTES)
#define QUICK_UNITS 10
#define PARTS 10  /* of a large one in a small one */
#define ROUNDS 11 /* odd: one is the median; a job has 14 snapshots at most */
#define LIMIT_MS 20
#define GROWTH_LIMIT_MS 5

enum size { SMALL, LARGE, SIZES };

struct snapshots {
	struct bench_node tierd;
	struct tierd_node *node;
	struct tierd_job *jobs[SIZES];
	unsigned units[SIZES];
	double samples[SIZES][ROUNDS];
};

/* Three states of each are reserved; some of the disk stays free. */
static int fit(struct snapshots *snapshots)
{
	struct statvfs disk;
	uint64_t most;

	if (statvfs(snapshots->tierd.disk, &disk) < 0)
		return -errno;
	most = disk.f_bavail * disk.f_frsize / 4 / STORE_LARGE_BYTES;
	if (most < snapshots->units[LARGE])
		snapshots->units[LARGE] = (unsigned)most;
	snapshots->units[SMALL] = snapshots->units[LARGE] / PARTS;
	return snapshots->units[SMALL] > 0 ? 0 : -ENOSPC;
}

static int make_jobs(struct snapshots *snapshots)
{
	static const char *const names[SIZES] = { "small", "large" };
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	int r = tierd_connect(snapshots->tierd.socket, &snapshots->node);

	options.parameter_placement = options.optimizer_placement = TIERD_PLACE_NVME;
	options.host_budget = 4 * STORE_LARGE_BYTES;
	options.snapshots = 1;
	for (unsigned i = 0; i < SIZES && r == 0; i++) {
		options.name = names[i];
		r = store_make_large(snapshots->node, &options, snapshots->units[i], &snapshots->jobs[i]);
	}
	return r;
}

static int take(struct snapshots *snapshots, enum size size, unsigned round)
{
	uint64_t start;
	char name[16];
	int r;

	snprintf(name, sizeof(name), "kept-%u", round);
	start = clock_now_ns();
	r = tierd_snapshot(snapshots->jobs[size], name);
	snapshots->samples[size][round] = bench_ms_since(start);
	if (r < 0)
		fprintf(stderr, "snapshot: %s\n", tierd_message());
	return r;
}

static int report(struct bench *bench, struct snapshots *snapshots)
{
	double medians[SIZES];
	int r;

	for (unsigned i = 0; i < SIZES; i++) {
		double *samples = snapshots->samples[i];

		medians[i] = bench_median(samples, ROUNDS);
		printf("snapshot_ms: of %.2f GiB after %.2f ms (at most %.2f ms)\n",
		       (double)(snapshots->units[i] * STORE_LARGE_BYTES) / (double)GIB, medians[i],
		       bench_quantile(samples, ROUNDS, 1));
	}
	r = bench_record(bench, "snapshot_ms", medians[LARGE], "ms", LIMIT_MS);
	return r < 0 ? r
		     : bench_record(bench, "snapshot_growth_ms", medians[LARGE] - medians[SMALL], "ms",
				    GROWTH_LIMIT_MS);
}

int bench_snapshot(struct bench *bench)
{
	struct snapshots snapshots = { .tierd = BENCH_NODE_INIT };
	int r = bench_node_start(&snapshots.tierd, "1G", "40G");

	snapshots.units[LARGE] = bench_is_quick(bench) ? QUICK_UNITS : UNITS;
	if (r == 0)
		r = fit(&snapshots);
	if (r == 0)
		r = make_jobs(&snapshots);
	for (unsigned i = 0; i < 2 * ROUNDS && r == 0; i++)
		r = take(&snapshots, i % 4 == 1 || i % 4 == 2 ? LARGE : SMALL, i / 2);
	if (r == 0)
		r = report(bench, &snapshots);
	tierd_disconnect(snapshots.node);
	bench_node_stop(&snapshots.tierd);
	return r;
}
