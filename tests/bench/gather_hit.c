/* Gather and release of units that are resident: eight ranks in processes of their own, while a ninth walks
 * over a model that is larger than the arena, so that tierd loads and evicts all the time.
 *
 * Every pair is timed by itself, with the time stamp counter between fences. What the two readings cost alone
 * (the median of as many readings with nothing in between) is taken off. Where the counter moves in coarse
 * steps, the printed time of a pair within a run that is timed as a whole says how much that matters. A batch
 * is 32 units at once, its time that of each of them. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __x86_64__
#include <x86intrin.h>
#endif

#include "common/clock.h"
#include "common/size.h"
#include "tests/bench/gather.h"
#include "tests/bench/node.h"

#define HAMMERS 8
#define RANKS (HAMMERS + 1)
#define HOT_UNITS 32
#define UNITS (HOT_UNITS + 48)
#define HOT_ELEMENTS (UINT64_C(1) << 16)
#define UNIT_ELEMENTS (UINT64_C(1) << 20) /* each a pack of its own */
/* Sums and gradient buffers of the hot units, and an arena for about a third of the model. */
#define BUDGET (48 * MIB)
#define TICKS 65536 /* of the histogram; longer pairs share its last place */
#define RUN 1024
#define RUN_SCALE 16

struct samples {
	uint64_t counts[TICKS];
};

/* Shared by the processes. */
struct scene {
	pthread_barrier_t barrier;
	atomic_bool is_over;
	atomic_int error;
	char message[512];
	struct samples pairs[HAMMERS];
	struct samples runs[HAMMERS]; /* ticks / RUN_SCALE */
	struct samples batches[HAMMERS];
	struct samples clock;
	uint64_t hits, misses, evicted_bytes;
	double ticks_per_ns;
};

static inline uint64_t ticks(void)
{
#ifdef __x86_64__
	_mm_lfence();
	uint64_t now = __rdtsc();

	_mm_lfence();
	return now;
#else
	return clock_now_ns();
#endif
}

static inline void note(struct samples *samples, uint64_t duration)
{
	samples->counts[duration < TICKS ? duration : TICKS - 1]++;
}

static uint64_t quantile(const struct samples *samples, double part)
{
	uint64_t all = 0, below = 0, i;

	for (i = 0; i < TICKS; i++)
		all += samples->counts[i];
	for (i = 0; i < TICKS - 1; i++) {
		below += samples->counts[i];
		if ((double)below >= part * (double)all)
			break;
	}
	return i;
}

/* ---- In the processes ---- */

static int open_job(struct tierd_node *node, uint32_t rank, struct tierd_job **ret_job)
{
	struct tierd_job_options options = TIERD_JOB_OPTIONS_INIT;
	struct tierd_job_state state;
	int r;

	options.name = "hits";
	options.rank = rank;
	options.world_size = RANKS;
	options.host_budget = BUDGET;
	r = tierd_job_open(node, &options, ret_job);
	if (r == 0)
		r = bench_define_units(*ret_job,
				       &(struct bench_units){ .count = HOT_UNITS, .elements = HOT_ELEMENTS });
	if (r == 0)
		r = bench_define_units(*ret_job, &(struct bench_units){ .first = HOT_UNITS,
									.count = UNITS - HOT_UNITS,
									.elements = UNIT_ELEMENTS,
									.is_frozen = true });
	return r < 0 ? r : tierd_job_ready(*ret_job, -1, &state);
}

static int gather_pair(struct tierd_job *job, uint32_t unit)
{
	struct tierd_view view;
	int r = tierd_gather(job, unit, &view);

	return r < 0 ? r : tierd_release(job, unit);
}

static int run_pairs(struct samples *samples, struct tierd_job *job)
{
	int r = 0;

	for (unsigned i = 0; i < RUN && r == 0; i++) {
		uint64_t start = ticks();

		r = gather_pair(job, i % HOT_UNITS);
		note(samples, ticks() - start);
	}
	return r;
}

static int run_run(struct samples *samples, struct tierd_job *job)
{
	uint64_t start = ticks();
	int r = 0;

	for (unsigned i = 0; i < RUN && r == 0; i++)
		r = gather_pair(job, i % HOT_UNITS);
	note(samples, (ticks() - start) / RUN_SCALE);
	return r;
}

static int run_batches(struct samples *samples, struct tierd_job *job)
{
	struct tierd_view views[HOT_UNITS];
	uint32_t units[HOT_UNITS];
	int r = 0;

	for (uint32_t i = 0; i < HOT_UNITS; i++)
		units[i] = i;
	for (unsigned i = 0; i < RUN / HOT_UNITS && r == 0; i++) {
		uint64_t start = ticks();

		r = tierd_gather_many(job, units, HOT_UNITS, views);
		if (r == 0)
			r = tierd_release_many(job, units, HOT_UNITS);
		note(samples, ticks() - start);
	}
	return r;
}

static int hammer(struct scene *scene, struct tierd_job *job, uint32_t rank)
{
	int r = 0;

	while (r == 0 && !atomic_load_explicit(&scene->is_over, memory_order_relaxed)) {
		r = run_pairs(&scene->pairs[rank], job);
		if (r == 0)
			r = run_run(&scene->runs[rank], job);
		if (r == 0)
			r = run_batches(&scene->batches[rank], job);
	}
	return r;
}

static int walk(struct scene *scene, struct tierd_job *job)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && !atomic_load(&scene->is_over); i++)
		r = gather_pair(job, HOT_UNITS + i % (UNITS - HOT_UNITS));
	return r;
}

/* One pass teaches the order. */
static int learn(struct tierd_job *job, uint32_t rank)
{
	uint32_t first = rank < HAMMERS ? 0 : HOT_UNITS, end = rank < HAMMERS ? HOT_UNITS : UNITS;
	int r = 0;

	for (uint32_t unit = first; unit < end && r == 0; unit++)
		r = gather_pair(job, unit);
	return r < 0 ? r : bench_step(job, TIERD_DONE);
}

static int account(struct scene *scene, struct tierd_job *job, const struct tierd_statistics *before,
		   uint32_t rank)
{
	struct tierd_statistics after = TIERD_STATISTICS_INIT;
	int r = tierd_statistics(job, &after);

	if (r < 0)
		return r;
	if (rank == HAMMERS) {
		scene->evicted_bytes = after.job_gather_read_bytes - before->job_gather_read_bytes;
	} else {
		__atomic_fetch_add(&scene->hits, after.gathers - before->gathers, __ATOMIC_RELAXED);
		__atomic_fetch_add(&scene->misses, after.gather_misses - before->gather_misses,
				   __ATOMIC_RELAXED);
	}
	return 0;
}

static int run_rank(struct scene *scene, struct tierd_job *job, uint32_t rank)
{
	struct tierd_statistics before = TIERD_STATISTICS_INIT;
	int r = learn(job, rank);

	if (r == 0)
		r = tierd_statistics(job, &before);
	pthread_barrier_wait(&scene->barrier);
	if (r == 0)
		r = rank < HAMMERS ? hammer(scene, job, rank) : walk(scene, job);
	if (r < 0)
		atomic_store(&scene->is_over, true);
	pthread_barrier_wait(&scene->barrier);
	return r < 0 ? r : account(scene, job, &before, rank);
}

static void run_process(struct scene *scene, const char *socket, uint32_t rank)
{
	struct tierd_node *node = NULL;
	struct tierd_job *job = NULL;
	int r = tierd_connect(socket, &node);

	if (r == 0)
		r = open_job(node, rank, &job);
	if (r < 0) {
		pthread_barrier_wait(&scene->barrier);
		pthread_barrier_wait(&scene->barrier);
	} else {
		r = run_rank(scene, job, rank);
	}
	if (r < 0 && atomic_exchange(&scene->error, r) == 0)
		snprintf(scene->message, sizeof(scene->message), "rank %u: %s", rank, tierd_message());
	/* Nobody leaves while others still count. */
	pthread_barrier_wait(&scene->barrier);
	tierd_disconnect(node);
	_exit(r < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* ---- In the first process ---- */

static void measure_clock(struct scene *scene)
{
	uint64_t start_ns = clock_now_ns(), start = ticks();

	for (unsigned i = 0; i < 1000000; i++) {
		uint64_t first = ticks();

		note(&scene->clock, ticks() - first);
	}
	scene->ticks_per_ns = (double)(ticks() - start) / (double)(clock_now_ns() - start_ns);
}

static int run_all(struct scene *scene, const char *socket, double seconds)
{
	pid_t processes[RANKS];
	unsigned count = 0;

	fflush(NULL);
	for (; count < RANKS; count++) {
		processes[count] = fork();
		if (processes[count] == 0)
			run_process(scene, socket, count);
		if (processes[count] < 0)
			return -errno;
	}
	pthread_barrier_wait(&scene->barrier);
	clock_sleep_ns((uint64_t)(seconds * 1e9));
	atomic_store(&scene->is_over, true);
	pthread_barrier_wait(&scene->barrier);
	pthread_barrier_wait(&scene->barrier);
	while (count > 0)
		waitpid(processes[--count], NULL, 0);
	return scene->error;
}

/* In nanoseconds, of all ranks. */
static double quantile_of_all(const struct scene *scene, const struct samples ranks[HAMMERS], double part)
{
	static struct samples all;

	memset(&all, 0, sizeof(all));
	for (unsigned rank = 0; rank < HAMMERS; rank++)
		for (unsigned i = 0; i < TICKS; i++)
			all.counts[i] += ranks[rank].counts[i];
	return (double)quantile(&all, part) / scene->ticks_per_ns;
}

static int record(struct bench *bench, const struct scene *scene, const char *name, double part, double limit)
{
	double clock = (double)quantile(&scene->clock, 0.5) / scene->ticks_per_ns;
	double pair = quantile_of_all(scene, scene->pairs, part) - clock;

	return bench_record(bench, name, pair, "ns", limit);
}

static int record_batch(struct bench *bench, const struct scene *scene)
{
	double clock = (double)quantile(&scene->clock, 0.5) / scene->ticks_per_ns;
	double batch = quantile_of_all(scene, scene->batches, 0.5) - clock;

	return bench_record(bench, "gather_hit_batch_ns", batch / HOT_UNITS, "ns", 20);
}

static int measure(struct bench *bench, struct scene *scene, const char *socket)
{
	int r;

	measure_clock(scene);
	r = run_all(scene, socket, bench_is_quick(bench) ? 0.2 : 10);
	if (r < 0) {
		fprintf(stderr, "%s\n", scene->message);
		return r;
	}
	if (scene->evicted_bytes == 0) {
		fprintf(stderr, "nothing was loaded and evicted meanwhile\n");
		return -ENODATA;
	}
	printf("gather_hit_pair: %llu pairs of 8 ranks (%llu missed), %llu MiB loaded for a ninth meanwhile; "
	       "%.0f ns of clock are taken off each; timed together %.1f ns a pair\n",
	       (unsigned long long)scene->hits, (unsigned long long)scene->misses,
	       (unsigned long long)(scene->evicted_bytes / MIB),
	       (double)quantile(&scene->clock, 0.5) / scene->ticks_per_ns,
	       quantile_of_all(scene, scene->runs, 0.5) * RUN_SCALE / RUN);
	r = record(bench, scene, "gather_hit_pair_ns_p50", 0.5, 50);
	if (r == 0)
		r = record(bench, scene, "gather_hit_pair_ns_p99", 0.99, 500);
	return r < 0 ? r : record_batch(bench, scene);
}

int bench_gather_hits(struct bench *bench)
{
	struct bench_node tierd = BENCH_NODE_INIT;
	struct scene *scene =
		mmap(NULL, sizeof(*scene), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t attributes;
	int r;

	if (scene == MAP_FAILED)
		return -errno;
	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&scene->barrier, &attributes, RANKS + 1);
	r = bench_node_start(&tierd, "512M", "2G");
	if (r == 0)
		r = measure(bench, scene, tierd.socket);
	bench_node_stop(&tierd);
	munmap(scene, sizeof(*scene));
	return r;
}
