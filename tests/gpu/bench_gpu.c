/* AdamW on a GPU over what its memory allows, which a copy of the driver's tells; and of state in host memory
 * over what the bus and the kernel allow. */
#include <stdio.h>
#include <string.h>

#include "common/cleanup.h"
#include "offload/cuda/kernels/kernels.h"
#include "tests/bench/bench.h"
#include "tests/gpu/gpu_place.h"
#include "tests/gpu/host_update.h"

/* Far more than a cache holds: with the copy, 3 GB of memory. */
#define COUNT ((uint64_t)64 << 20)
#define LIMIT 0.9
/* Of host memory half a gigabyte. */
#define HOST_COUNT ((uint64_t)32 << 20)

static const char *const names[MOMENT_FORMATS] = { "exact", "bf16", "int8" };

struct update {
	struct update_arguments with;
	enum moment_format format;
	const char *kernel;
	size_t moved; /* bytes of an update */
	void *copy, *copied;
};

/* Each launch is short, so that several wait for the GPU, which waits for none. */
static double rate_of(const struct update *update, void (*begin)(const struct update *update), double seconds)
{
	uint64_t start = clock_now_ns();
	unsigned runs = 0;

	do {
		for (unsigned i = 0; i < 8; i++, runs++)
			begin(update);
		gpu_wait();
	} while (bench_seconds_since(start) < seconds);
	return (double)runs * (double)update->moved / bench_seconds_since(start);
}

static void begin_update(const struct update *update)
{
	gpu_begin(update->kernel, &update->with, kernels_update_blocks(update->format, COUNT),
		  UPDATE_THREADS);
}

static void begin_copy(const struct update *update)
{
	gpu_begin_copy(update->copied, update->copy, update->moved / 2);
}

static double run_update(void *update, double seconds)
{
	return rate_of(update, begin_update, seconds);
}

static double run_copy(void *update, double seconds)
{
	return rate_of(update, begin_copy, seconds);
}

/* Parameters are bf16. What the memory holds does not matter for the time. */
static void update_new(enum moment_format format, struct update *ret_update)
{
	static const struct optimizer_group group = { 1.0f, 0.9f, 0.999f, 1e-8f, 0.01f };
	const struct optimizer *adamw = optimizer_find("adamw", SIMD_SCALAR);
	struct optimizer_arrays *arrays = &ret_update->with.arrays;
	size_t moments = moment_bytes(format, COUNT);

	*ret_update = (struct update){ .format = format, .kernel = kernels_update(adamw, format) };
	optimizer_set(adamw, &group, 1e-3, 10, 1.0f, &ret_update->with.constants);
	ret_update->with.count = COUNT;
	ret_update->with.master = MASTER_SPLIT;
	arrays->parameter = place_allocate(COUNT * 2);
	arrays->master = place_allocate(COUNT * 2);
	arrays->gradient = place_allocate(COUNT * 4);
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
		arrays->slots[slot] = place_allocate(moments);
	ret_update->moved = COUNT * (4 + 4 + 4) + 4 * moments;
	ret_update->copy = place_allocate(ret_update->moved / 2);
	ret_update->copied = place_allocate(ret_update->moved / 2);
}

static void update_free(struct update *update)
{
	struct optimizer_arrays *arrays = &update->with.arrays;

	place_free(arrays->parameter);
	place_free(arrays->master);
	place_free((void *)arrays->gradient);
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
		place_free(arrays->slots[slot]);
	place_free(update->copy);
	place_free(update->copied);
}

static int measure(struct bench *bench, enum moment_format format, struct bench_result *ret_result)
{
	struct update update;
	int r;

	update_new(format, &update);
	printf("%s, moments %s:\n", gpu_name(), names[format]);
	r = bench_measure(bench,
			  &(struct bench_comparison){ .name = "gpu_adam_ratio",
						      .bound = BENCH_AT_LEAST,
						      .limit = LIMIT,
						      .unit = "GB/s",
						      .scale = 1e9,
						      .ours = { run_update, &update },
						      .theirs = { run_copy, &update },
						      .seconds = 0.25 },
			  ret_result);
	update_free(&update);
	return r;
}

static double host_rate(struct host_update *host, void (*run)(struct host_update *host), double seconds)
{
	uint64_t start = clock_now_ns();
	unsigned runs = 0;

	do {
		run(host);
		runs++;
	} while (bench_seconds_since(start) < seconds);
	return (double)runs * (double)host_update_bytes(host) / bench_seconds_since(start);
}

static double run_from_host(void *host, double seconds)
{
	return host_rate(host, host_update_run, seconds);
}

static double run_apart(void *host, double seconds)
{
	return host_rate(host, host_update_run_apart, seconds);
}

static int measure_from_host(struct bench *bench, enum moment_format format, struct bench_result *ret_result)
{
	struct host_update *host = host_update_new(format, HOST_COUNT);
	int r;

	printf("%s, state in host memory, moments %s:\n", gpu_name(), names[format]);
	r = bench_measure(bench,
			  &(struct bench_comparison){ .name = "gpu_update_ratio",
						      .bound = BENCH_AT_LEAST,
						      .limit = LIMIT,
						      .unit = "GB/s",
						      .scale = 1e9,
						      .ours = { run_from_host, host },
						      .theirs = { run_apart, host } },
			  ret_result);
	host = host_update_free(host);
	return r;
}

/* The worst format is the result. */
static int measure_formats(struct bench *bench, const char *name,
			   int (*measure_one)(struct bench *bench, enum moment_format format,
					      struct bench_result *ret_result))
{
	struct bench_result worst = { .value = 0 };
	int r = 0;

	if (!bench_wants(bench, name))
		return 0;
	for (unsigned format = 0; r == 0 && format < MOMENT_FORMATS; format++) {
		struct bench_result result;

		r = measure_one(bench, format, &result);
		if (r == 0 && (format == 0 || result.value < worst.value))
			worst = result;
	}
	return r < 0 ? r : bench_record_result(bench, &worst);
}

static int run(struct bench *bench)
{
	const char *why = place_open();
	int r;

	if (why) {
		bench_skip(bench, "gpu_adam_ratio", why);
		bench_skip(bench, "gpu_update_ratio", why);
		return 0;
	}
	r = measure_formats(bench, "gpu_adam_ratio", measure);
	return r < 0 ? r : measure_formats(bench, "gpu_update_ratio", measure_from_host);
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
