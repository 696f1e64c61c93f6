/* The optimizer and the reduction, over kernels that only stream the same bytes, on all cores. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "collectives/reduce.h"
#include "common/cleanup.h"
#include "common/clock.h"
#include "common/simd.h"
#include "common/size.h"
#include "offload/optimizer.h"
#include "tests/bench/bench.h"
#include "tests/bench/stream.h"

/* In all, and a multiple of what the threads divide it by: far more than any cache holds. */
#define ELEMENTS (UINT64_C(24) << 20)
#define SHARE_UNIT UINT64_C(4096)
#define MAX_THREADS 256

struct arrays {
	uint16_t *parameter;
	int16_t *remainder;
	float *master, *m, *v, *gradient;
	const void *contributions[STREAM_RANKS];
};

/* One kernel over elements first … first + count - 1. */
typedef void pass(const struct arrays *arrays, size_t first, size_t count);

static struct arrays arrays;
static const struct stream_kernels *streams = &stream_scalar;
static const struct optimizer *adamw;
static reduce_kernel *reduce;
static struct optimizer_constants constants;
static volatile uint32_t no_mask = 0;

static void update(enum master_kind kind, const struct arrays *at, void *parameter, void *master,
		   size_t first, size_t count)
{
	const struct optimizer_arrays ranges = { .parameter = parameter,
						 .master = master,
						 .slots = { at->m + first, at->v + first },
						 .gradient = at->gradient + first };

	adamw->kernels[MOMENTS_FP32][kind](&constants, count, &ranges);
}

static void pass_split(const struct arrays *at, size_t first, size_t count)
{
	update(MASTER_SPLIT, at, at->parameter + first, at->remainder + first, first, count);
}

static void pass_split_stream(const struct arrays *at, size_t first, size_t count)
{
	streams->split(no_mask, count, at->parameter + first, at->remainder + first, at->m + first,
		       at->v + first, at->gradient + first);
}

static void pass_bf16_moments(const struct arrays *at, size_t first, size_t count)
{
	const struct optimizer_arrays ranges = {
		.parameter = at->parameter + first,
		.master = at->remainder + first,
		.slots = { (uint16_t *)at->m + first, (uint16_t *)at->v + first },
		.gradient = at->gradient + first,
		.noise = { { 1, 2 }, first },
	};

	adamw->kernels[MOMENTS_BF16][MASTER_SPLIT](&constants, count, &ranges);
}

static void pass_bf16_moments_stream(const struct arrays *at, size_t first, size_t count)
{
	streams->bf16_moments(no_mask, count, at->parameter + first, at->remainder + first,
			      (uint16_t *)at->m + first, (uint16_t *)at->v + first, at->gradient + first);
}

static void pass_fp32(const struct arrays *at, size_t first, size_t count)
{
	update(MASTER_ITSELF, at, at->master + first, NULL, first, count);
}

static void pass_fp32_stream(const struct arrays *at, size_t first, size_t count)
{
	streams->fp32(no_mask, count, at->master + first, at->m + first, at->v + first, at->gradient + first);
}

static void contributions_from(const struct arrays *at, size_t first, const void **ret_contributions)
{
	for (int rank = 0; rank < STREAM_RANKS; rank++)
		ret_contributions[rank] = (const uint16_t *)at->contributions[rank] + first;
}

static void pass_reduce(const struct arrays *at, size_t first, size_t count)
{
	const void *contributions[STREAM_RANKS];

	contributions_from(at, first, contributions);
	reduce(at->m + first, true, contributions, STREAM_RANKS, count);
}

static void pass_reduce_stream(const struct arrays *at, size_t first, size_t count)
{
	const void *contributions[STREAM_RANKS];

	contributions_from(at, first, contributions);
	streams->reduce(no_mask, count, at->m + first, contributions);
}

struct thread {
	pthread_t id;
	pthread_barrier_t *start;
	pass *pass;
	size_t first, count;
	double seconds, rate;
};

/* In pieces as a worker gets them, round and round through the thread's share. */
static void *run_thread(void *argument)
{
	struct thread *thread = argument;
	size_t piece = 256 * SHARE_UNIT, done = 0, at = 0;
	uint64_t begin, now;

	pthread_barrier_wait(thread->start);
	begin = now = clock_now_ns();
	while ((double)(now - begin) < thread->seconds * 1e9) {
		size_t count = thread->count - at < piece ? thread->count - at : piece;

		thread->pass(&arrays, thread->first + at, count);
		done += count;
		at = at + count == thread->count ? 0 : at + count;
		now = clock_now_ns();
	}
	thread->rate = (double)done / ((double)(now - begin) / 1e9);
	return NULL;
}

static unsigned processors(void)
{
	long count = sysconf(_SC_NPROCESSORS_ONLN);

	return count < 1 ? 1 : count > MAX_THREADS ? MAX_THREADS : (unsigned)count;
}

/* Elements per second of all threads. */
static double run(void *context, double seconds)
{
	struct thread threads[MAX_THREADS];
	unsigned count = processors();
	size_t share = ELEMENTS / count / SHARE_UNIT * SHARE_UNIT;
	pthread_barrier_t start;
	double rate = 0;

	pthread_barrier_init(&start, NULL, count);
	for (unsigned i = 0; i < count; i++) {
		threads[i] = (struct thread){ .start = &start,
					      .pass = *(pass **)context,
					      .first = i * share,
					      .count = share,
					      .seconds = seconds };
		if (pthread_create(&threads[i].id, NULL, run_thread, &threads[i]) != 0)
			abort(); /* the others wait at the barrier for ever */
	}
	for (unsigned i = 0; i < count; i++) {
		pthread_join(threads[i].id, NULL);
		rate += threads[i].rate;
	}
	pthread_barrier_destroy(&start);
	return rate;
}

static void *allocate(size_t length)
{
	void *place;

	if (posix_memalign(&place, 2 * MIB, length) != 0) {
		fprintf(stderr, "not enough memory: %zu bytes\n", length);
		exit(EXIT_FAILURE);
	}
	(void)madvise(place, length, MADV_HUGEPAGE);
	return place;
}

/* Values of the size that they have in training, positive and negative, never denormal. */
static float *allocate_floats(float scale)
{
	float *values = allocate(ELEMENTS * sizeof(float));

	for (size_t i = 0; i < ELEMENTS; i++)
		values[i] = scale * (float)((int)((uint32_t)i * 2654435761u >> 20) - 2048 + 0.5);
	return values;
}

static uint16_t *allocate_shorts(uint16_t value, uint16_t mask)
{
	uint16_t *values = allocate(ELEMENTS * sizeof(uint16_t));

	for (size_t i = 0; i < ELEMENTS; i++)
		values[i] = (uint16_t)(value ^ ((i * 2654435761u >> 8) & mask));
	return values;
}

static void prepare(void)
{
	enum simd_level level = simd_level();

	adamw = optimizer_find("adamw", level);
	reduce = reduce_sum_kernel(level, REDUCE_BF16);
#ifdef __x86_64__
	if (level != SIMD_SCALAR)
		streams = level == SIMD_AVX512 ? &stream_avx512 : &stream_avx2;
#endif
	optimizer_set(adamw, &(struct optimizer_group){ 1.0f, 0.9f, 0.999f, 1e-8f, 0.01f }, 1e-4, 10, 1.0f,
		      &constants);
	arrays.parameter = allocate_shorts(0x3c80, 0x807f);
	arrays.remainder = (int16_t *)allocate_shorts(0, 0xffff);
	arrays.master = allocate_floats(1e-5f);
	arrays.m = allocate_floats(1e-6f);
	arrays.v = allocate_floats(0);
	arrays.gradient = allocate_floats(1e-6f);
	for (int rank = 0; rank < STREAM_RANKS; rank++)
		arrays.contributions[rank] = allocate_shorts((uint16_t)(0x3a00 + rank), 0x807f);
	printf("%u threads, %s\n", processors(), simd_level_name(level));
}

struct subject {
	const char *name;
	pass *ours, *theirs;
};

static const struct subject subjects[] = {
	{ "adam_ratio", pass_split, pass_split_stream },
	{ "adam_bf16_moments_ratio", pass_bf16_moments, pass_bf16_moments_stream },
	{ "adam_fp32_ratio", pass_fp32, pass_fp32_stream },
	{ "reduce_ratio", pass_reduce, pass_reduce_stream },
};

static int compare(struct bench *bench, const struct subject *subject)
{
	pass *ours = subject->ours, *theirs = subject->theirs;

	if (!arrays.m)
		prepare();
	return bench_compare(bench, &(struct bench_comparison){ .name = subject->name,
								.bound = BENCH_AT_LEAST,
								.limit = 0.9,
								.unit = "G elements/s",
								.scale = 1e9,
								.ours = { run, &ours },
								.theirs = { run, &theirs } });
}

int main(int argc, char **argv)
{
	struct bench *bench = NULL;
	int r = bench_new(argc, argv, &bench);

	if (r < 0)
		return EXIT_FAILURE;
	for (size_t i = 0; i < ARRAY_LENGTH(subjects) && r == 0; i++)
		if (bench_wants(bench, subjects[i].name))
			r = compare(bench, &subjects[i]);
	return bench_end(bench, r);
}
