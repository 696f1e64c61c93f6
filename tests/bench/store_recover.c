/* How long a trainer stands still whose daemon is killed and started again at once: from the kill until a
 * gather is there. One trainer goes on by itself, as libtierd does when asked to reconnect; another one is
 * started anew, and opens the job again: in turns. */
#include <errno.h>
#include <stdio.h>

#include "common/size.h"
#include "tests/bench/store.h"

#define KILLS 5 /* odd: one is the median */
#define QUICK_KILLS 1
#define LIMIT_MS 1000

struct recovery {
	double went_on[KILLS], anew[KILLS];
	unsigned count;
};

static int read_bytes(const struct store_scene *scene, uint64_t *ret_bytes)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	int r = tierd_statistics(scene->job, &statistics);

	if (r == 0)
		*ret_bytes = statistics.job_gather_read_bytes;
	return r;
}

/* Whatever was in the arena is gone with the daemon: of a gather that has read nothing from the devices
 * nothing is learned. */
static int restart_under(struct store_scene *scene, double *ret_ms)
{
	uint64_t start, before = 0, after = 0;
	double gather;
	int r = read_bytes(scene, &before);

	start = clock_now_ns();
	bench_node_kill(&scene->tierd);
	if (r == 0)
		r = bench_node_run(&scene->tierd);
	if (r == 0)
		r = store_scene_gather(scene, scene->units - 1, &gather);
	*ret_ms = bench_ms_since(start);
	if (r == 0)
		r = read_bytes(scene, &after);
	if (r < 0 || after != before)
		return r;
	fprintf(stderr, "recover: the gather needed no daemon: its unit was still mapped\n");
	return -ENODATA;
}

static int restart_and_join(struct store_scene *scene, double *ret_ms)
{
	uint64_t start;
	double gather;
	int r;

	scene->node = tierd_disconnect(scene->node);
	start = clock_now_ns();
	bench_node_kill(&scene->tierd);
	r = bench_node_run(&scene->tierd);
	if (r == 0)
		r = store_scene_join(scene);
	if (r == 0)
		r = store_scene_gather(scene, 0, &gather);
	*ret_ms = bench_ms_since(start);
	return r;
}

static int report(struct bench *bench, const struct store_scene *scene, struct recovery *recovery)
{
	double median = bench_median(recovery->went_on, recovery->count);
	double anew = bench_median(recovery->anew, recovery->count);

	printf("recover_ms: %.2f GiB; of %u kills: a trainer that goes on gathers after %.0f ms, at most "
	       "%.0f "
	       "ms; one that is started anew after %.0f ms, at most %.0f ms\n",
	       (double)store_scene_bytes(scene) / (double)GIB, recovery->count, median,
	       bench_quantile(recovery->went_on, recovery->count, 1), anew,
	       bench_quantile(recovery->anew, recovery->count, 1));
	return bench_record(bench, "recover_ms", median > anew ? median : anew, "ms", LIMIT_MS);
}

int bench_recover(struct bench *bench, struct store_scene *scene)
{
	struct recovery recovery = { .count = bench_is_quick(bench) ? QUICK_KILLS : KILLS };
	double lag;
	int r = store_scene_train_durably(scene, &lag);

	for (unsigned i = 0; i < recovery.count && r == 0; i++) {
		r = restart_under(scene, &recovery.went_on[i]);
		if (r == 0)
			r = restart_and_join(scene, &recovery.anew[i]);
	}
	return r < 0 ? r : report(bench, scene, &recovery);
}
