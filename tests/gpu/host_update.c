#include "tests/gpu/host_update.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "offload/cuda/gpu_update.h"
#include "tests/gpu/gpu_place.h"

/* As a daemon would give it. */
#define CHUNK_BYTES ((size_t)GPU_STREAMS * 16 << 20)

struct host_update {
	struct gpus gpus;
	struct gpu_engine *engine;
	struct driver_function *functions[KERNELS_COUNT];
	struct gpu_kernels kernels;
	struct gpu_memory chunks;
	struct gpu_updater *updater;

	struct gpu_pin pin; /* what goes there and comes back, and behind it the gradients */
	size_t back_bytes, in_bytes;
	struct gpu_update update;

	/* Of the limit, on the GPU. */
	char *in, *back;
	struct update_arguments with;
};

/* Of the one thing that was asked for. */
static bool is_done;
static int done_status;

static void note(struct gpu_request *request, int status)
{
	is_done = true;
	done_status = status;
}

static void note_pass(struct gpu_pass *pass, int status)
{
	is_done = true;
	done_status = status;
}

static void wait_for(struct host_update *host, const struct gpu_problem *problem)
{
	struct pollfd wanted = { .fd = gpu_engine_fd(host->engine), .events = POLLIN };

	while (!is_done) {
		(void)poll(&wanted, 1, -1);
		gpu_engine_reap(host->engine);
	}
	is_done = false;
	if (done_status == 0)
		return;
	fprintf(stderr, "%s\n", problem->text);
	exit(1);
}

/* ---- Opening ---- */

static void open_engine(struct host_update *host)
{
	const struct gpu_engine_config config = { .gpus = &host->gpus };
	struct gpu_updater_config updater = { .kernels = &host->kernels, .bytes = CHUNK_BYTES };
	struct gpu_problem problem;

	gpus_find(&host->gpus);
	if (gpu_engine_new(&config, &problem, &host->engine) < 0) {
		fprintf(stderr, "%s\n", problem.text);
		exit(1);
	}
	host->kernels = (struct gpu_kernels){ .request = { .done = note },
					      .image = place_image(),
					      .count = KERNELS_COUNT,
					      .names = kernels_names,
					      .functions = host->functions };
	gpu_kernels_load(host->engine, &host->kernels);
	wait_for(host, &host->kernels.request.problem);
	host->chunks = (struct gpu_memory){ .request = { .done = note }, .bytes = CHUNK_BYTES };
	gpu_memory_create(host->engine, &host->chunks);
	wait_for(host, &host->chunks.request.problem);
	updater.engine = host->engine;
	updater.memory = host->chunks.address;
	host->updater = gpu_updater_new(&updater);
	if (!host->updater)
		abort();
}

static void open_memory(struct host_update *host)
{
	void *base = mmap(NULL, host->in_bytes, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (base == MAP_FAILED) {
		perror("host memory");
		exit(1);
	}
	host->pin = (struct gpu_pin){ .request = { .done = note }, .base = base, .bytes = host->in_bytes };
	gpu_pin_add(host->engine, &host->pin);
	wait_for(host, &host->pin.request.problem);
}

static driver_address take(driver_address *at, size_t bytes)
{
	*at += bytes;
	return *at - bytes;
}

static void describe(struct host_update *host, enum moment_format format, uint64_t count)
{
	static const struct optimizer_group group = { 1.0f, 0.9f, 0.999f, 1e-8f, 0.01f };
	driver_address at = (uintptr_t)host->pin.base;
	struct gpu_update *update = &host->update;

	*update = (struct gpu_update){ .pass = { .done = note_pass, .count = count },
				       .optimizer = optimizer_find("adamw", SIMD_SCALAR),
				       .format = format,
				       .kind = MASTER_SPLIT };
	optimizer_set(update->optimizer, &group, 1e-3, 10, 1.0f, &update->constants);
	update->parameter.address = take(&at, count * sizeof(uint16_t));
	update->master.address = take(&at, count * sizeof(int16_t));
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
		update->slots[slot].address = take(&at, moment_bytes(format, count));
	update->gradient.address = take(&at, count * sizeof(float));
}

/* The kernel has memory that no copy uses. */
static void open_limit(struct host_update *host)
{
	const struct gpu_update *update = &host->update;
	struct optimizer_arrays *arrays = &host->with.arrays;
	uint64_t count = update->pass.count;

	host->in = place_allocate(host->in_bytes);
	host->back = place_allocate(host->back_bytes);
	host->with = (struct update_arguments){ .constants = update->constants,
						.count = count,
						.master = update->kind };
	arrays->parameter = place_allocate(count * sizeof(uint16_t));
	arrays->master = place_allocate(count * sizeof(int16_t));
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
		arrays->slots[slot] = place_allocate(moment_bytes(update->format, count));
	arrays->gradient = place_allocate(count * sizeof(float));
}

struct host_update *host_update_new(enum moment_format format, uint64_t count)
{
	struct host_update *host = calloc(1, sizeof(*host));

	if (!host)
		abort();
	host->back_bytes = count * (sizeof(uint16_t) + sizeof(int16_t)) + 2 * moment_bytes(format, count);
	host->in_bytes = host->back_bytes + count * sizeof(float);
	open_engine(host);
	open_memory(host);
	describe(host, format, count);
	open_limit(host);
	return host;
}

/* ---- Ending ---- */

static void close_limit(struct host_update *host)
{
	const struct optimizer_arrays *arrays = &host->with.arrays;

	place_free(host->in);
	place_free(host->back);
	place_free(arrays->parameter);
	place_free(arrays->master);
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
		place_free(arrays->slots[slot]);
	place_free((void *)arrays->gradient);
}

struct host_update *host_update_free(struct host_update *host)
{
	close_limit(host);
	host->updater = gpu_updater_free(host->updater);
	gpu_pin_remove(host->engine, &host->pin);
	wait_for(host, &host->pin.request.problem);
	munmap(host->pin.base, host->pin.bytes);
	gpu_memory_destroy(host->engine, &host->chunks);
	wait_for(host, &host->chunks.request.problem);
	gpu_kernels_unload(host->engine, &host->kernels);
	wait_for(host, &host->kernels.request.problem);
	host->engine = gpu_engine_free(host->engine);
	free(host);
	return NULL;
}

/* ---- Running ---- */

size_t host_update_bytes(const struct host_update *host)
{
	return host->in_bytes + host->back_bytes;
}

void host_update_run(struct host_update *host)
{
	gpu_updater_update(host->updater, &host->update);
	wait_for(host, &host->update.pass.problem);
}

void host_update_run_apart(struct host_update *host)
{
	const struct gpu_update *update = &host->update;

	gpu_begin_both_ways(host->in, host->pin.base, host->in_bytes, host->pin.base, host->back,
			    host->back_bytes);
	gpu_begin(kernels_update(update->optimizer, update->format), &host->with,
		  kernels_update_blocks(update->format, update->pass.count), UPDATE_THREADS);
	gpu_wait();
}
