/* Copies by the GPU engine, as units of a tier come, over one plain copy of as many bytes: from the same host
 * memory, which the engine has registered. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>

#include "common/cleanup.h"
#include "offload/cuda/gpu_engine.h"
#include "tests/bench/bench.h"
#include "tests/gpu/hardware.h"

#define UNITS 16
#define UNIT_BYTES ((size_t)32 << 20)
#define BYTES (UNITS * UNIT_BYTES)
#define LIMIT 0.95

struct place {
	struct gpus gpus;
	struct gpu_engine *engine;
	struct gpu_memory memory;
	struct gpu_pin pin;
	void *host;
	struct driver_stream *stream;
	bool is_to_host; /* the copies that are measured */
	struct gpu_copy copies[UNITS];
};

/* ---- Requests ---- */

static unsigned outstanding;
static int status;

static void note(struct gpu_request *request, int r)
{
	outstanding--;
	if (r < 0 && status == 0) {
		fprintf(stderr, "%s\n", request->problem.text);
		status = r;
	}
}

/* The first failure of those that were waited for. */
static int wait_for_all(struct place *place)
{
	struct pollfd wanted = { .fd = gpu_engine_fd(place->engine), .events = POLLIN };
	int r;

	while (outstanding > 0) {
		(void)poll(&wanted, 1, -1);
		gpu_engine_reap(place->engine);
	}
	r = status;
	status = 0;
	return r;
}

/* ---- Two ways to copy ---- */

static int copy_units(struct place *place)
{
	for (unsigned i = 0; i < UNITS; i++) {
		driver_address host = (uintptr_t)place->host + i * UNIT_BYTES;
		driver_address gpu = place->memory.address + i * UNIT_BYTES;

		place->copies[i] =
			(struct gpu_copy){ .request = { .done = note },
					   .direction = place->is_to_host ? GPU_TO_HOST : GPU_FROM_HOST,
					   .to = place->is_to_host ? host : gpu,
					   .from = place->is_to_host ? gpu : host,
					   .bytes = UNIT_BYTES };
		outstanding++;
		gpu_copy_submit(place->engine, &place->copies[i]);
	}
	return wait_for_all(place);
}

/* From boundary to boundary of what is registered, because the driver takes no copy of two registrations. */
static int copy_plainly(struct place *place)
{
	for (size_t done = 0, part; done < BYTES; done += part) {
		driver_address host = (uintptr_t)place->host + done, gpu = place->memory.address + done;

		part = GPU_PIN_BYTES - host % GPU_PIN_BYTES;
		part = part < BYTES - done ? part : BYTES - done;
		hardware_expect(hardware_driver.copy(place->is_to_host ? host : gpu,
						     place->is_to_host ? gpu : host, part, place->stream));
	}
	hardware_expect(hardware_driver.stream_synchronize(place->stream));
	return 0;
}

static double rate_of(struct place *place, int (*copy)(struct place *place), double seconds)
{
	uint64_t start = clock_now_ns();
	unsigned runs = 0;
	int r;

	do {
		r = copy(place);
		runs++;
	} while (r == 0 && bench_seconds_since(start) < seconds);
	return r < 0 ? r : (double)runs * (double)BYTES / bench_seconds_since(start);
}

static double run_units(void *place, double seconds)
{
	return rate_of(place, copy_units, seconds);
}

static double run_plainly(void *place, double seconds)
{
	return rate_of(place, copy_plainly, seconds);
}

/* ---- All of it ---- */

static int place_new(struct place *place)
{
	struct gpu_engine_config config = { .gpus = &place->gpus };
	struct gpu_problem problem;
	int r;

	gpus_find(&place->gpus);
	r = gpu_engine_new(&config, &problem, &place->engine);
	if (r < 0) {
		fprintf(stderr, "%s\n", problem.text);
		return r;
	}
	place->host = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (place->host == MAP_FAILED)
		return -ENOMEM;
	(void)madvise(place->host, BYTES, MADV_HUGEPAGE);
	place->memory = (struct gpu_memory){ .request = { .done = note }, .bytes = BYTES };
	place->pin = (struct gpu_pin){ .request = { .done = note }, .base = place->host, .bytes = BYTES };
	outstanding += 2;
	gpu_memory_create(place->engine, &place->memory);
	gpu_pin_add(place->engine, &place->pin);
	hardware_enter();
	hardware_expect(hardware_driver.stream_create(&place->stream, DRIVER_NO_STREAM_0));
	return wait_for_all(place);
}

static int measure(struct bench *bench, struct place *place, struct bench_result *ret_result)
{
	printf("%s, %s:\n", hardware_name(), place->is_to_host ? "GPU to host" : "host to GPU");
	return bench_measure(bench,
			     &(struct bench_comparison){ .name = "gpu_copy_ratio",
							 .bound = BENCH_AT_LEAST,
							 .limit = LIMIT,
							 .unit = "GB/s",
							 .scale = 1e9,
							 .ours = { run_units, place },
							 .theirs = { run_plainly, place },
							 .seconds = 0.25 },
			     ret_result);
}

/* The worse direction is the result. What is left goes with the process. */
static int measure_both(struct bench *bench)
{
	static struct place place;
	struct bench_result in, out;
	int r;

	r = place_new(&place);
	if (r == 0)
		r = measure(bench, &place, &in);
	place.is_to_host = true;
	if (r == 0)
		r = measure(bench, &place, &out);
	return r < 0 ? r : bench_record_result(bench, in.value < out.value ? &in : &out);
}

static int run(struct bench *bench)
{
	const char *why = hardware_find();

	if (why)
		bench_skip(bench, "gpu_copy_ratio", why);
	return !why && bench_wants(bench, "gpu_copy_ratio") ? measure_both(bench) : 0;
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
