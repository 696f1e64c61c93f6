/* Ranks that gather on a GPU, which a stand-in plays: what a stream finds there is what host memory has, in
 * each step, however few units the GPU has room for.
 *
 * usage: gpu_tier GPUS STEPS UNITS_ON_GPU [DEATHS [FRACTION]], where GPUS has a character for each rank: the
 * digit of its GPU, or a dash; 0 units are as many as there are; so often the last rank is killed, and
 * another one comes; GPUs make that fraction of the updates. Prints a hash of all values at the end. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "crash_support.h"
#include "offload/cuda/driver.h"

#define UNITS 6
#define ELEMENTS (1ul << 20)
#define UNIT_BYTES (4 * ELEMENTS)
/* Of each unit the stream reads so much. */
#define READ_BYTES 4096ul

static struct driver driver;
static struct driver_stream *stream;
static unsigned char host[UNITS][READ_BYTES] __attribute__((aligned(4096)));
static const char *gpus; /* by rank */
static unsigned long steps, units_on_gpu, ranks;
static bool is_on_gpu;
static float fraction;

static void open_gpu(int gpu)
{
	struct dynamic_library library = { 0 };
	struct driver_context *context;

	REQUIRE(driver_open(&driver, &library));
	REQUIRE(driver.context_retain(&context, gpu) == DRIVER_DONE);
	REQUIRE(driver.context_enter(context) == DRIVER_DONE);
	REQUIRE(driver.host_register(host, sizeof(host), 0) == DRIVER_DONE);
	REQUIRE(driver.stream_create(&stream, DRIVER_NO_STREAM_0) == DRIVER_DONE);
}

/* The epoch may end at any time. */
#define TRY(call)                                                                                            \
	do {                                                                                                 \
		int r_ = (call);                                                                             \
		if (r_ == -ESTALE)                                                                           \
			return false;                                                                        \
		support_expect(__FILE__, __LINE__, #call, r_, 0, NULL);                                      \
	} while (0)

/* Nobody waits for anything between the units: all is in the order of the stream. */
static bool pass(struct tierd_job *job)
{
	if (!is_on_gpu)
		return true;
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		struct tierd_view view;

		TRY(tierd_gather_on(job, unit, stream, &view));
		REQUIRE(driver.copy((uintptr_t)host[unit], (uintptr_t)view.base + view.offsets[0], READ_BYTES,
				    stream) == DRIVER_DONE);
		OK(tierd_release_on(job, unit, stream));
	}
	return true;
}

static bool compare(struct tierd_job *job, uint64_t step)
{
	REQUIRE(!is_on_gpu || driver.stream_synchronize(stream) == DRIVER_DONE);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		struct tierd_view view;

		TRY(tierd_gather(job, unit, &view));
		REQUIRE(view.version == step);
		REQUIRE(!is_on_gpu ||
			memcmp(host[unit], (const char *)view.base + view.offsets[0], READ_BYTES) == 0);
		OK(tierd_release(job, unit));
	}
	return true;
}

static struct tierd_job *join(struct tierd_node *node, unsigned rank)
{
	struct tierd_job_options options = support_options("gpu", rank, (uint32_t)ranks);
	struct tierd_job *job;

	if (is_on_gpu) {
		options.gpu = gpus[rank] - '0';
		options.gpu_budget = units_on_gpu * UNIT_BYTES;
		options.gpu_update = fraction;
	}
	OK(tierd_job_open(node, &options, &job));
	support_define_all(job, UNITS, TIERD_FP32, ELEMENTS, 1, 0.5);
	return job;
}

static bool take_step(struct tierd_job *job, uint64_t step)
{
	struct tierd_rates rates = support_rates(0.01f);

	if (!pass(job) || !compare(job, step))
		return false;
	/* As a backward does, from the last one. */
	for (uint32_t unit = UNITS; unit-- > 0;)
		TRY(support_push(job, unit, ELEMENTS, (float)(unit + step)));
	TRY(tierd_step(job, &rates, NULL));
	return true;
}

static bool train(struct crowd_board *board, unsigned rank, struct tierd_job *job)
{
	struct tierd_job_state state;

	TRY(tierd_job_ready(job, -1, &state));
	REQUIRE(!is_on_gpu ||
		state.gpu_bytes >=
			(units_on_gpu && units_on_gpu < UNITS ? units_on_gpu : UNITS) * UNIT_BYTES);
	for (uint64_t step = state.step; step < steps; step++) {
		board->steps[rank] = step;
		if (!take_step(job, step))
			return false;
	}
	return pass(job) && compare(job, steps);
}

static void print_hash(struct tierd_job *job)
{
	uint64_t hash = 0;

	for (uint32_t unit = 0; unit < UNITS; unit++) {
		struct tierd_view view;
		const uint32_t *words;

		OK(tierd_gather(job, unit, &view));
		words = (const uint32_t *)((const char *)view.base + view.offsets[0]);
		for (size_t i = 0; i < ELEMENTS; i++)
			hash = hash * 0x100000001b3 + words[i];
		OK(tierd_release(job, unit));
	}
	printf("%016llx\n", (unsigned long long)hash);
}

static void run(struct crowd_board *board, unsigned rank, void *argument)
{
	struct tierd_node *node = support_connect();
	struct tierd_job *job;

	is_on_gpu = gpus[rank] != '-';
	job = join(node, rank);
	if (is_on_gpu)
		open_gpu(gpus[rank] - '0');
	while (!train(board, rank, job) || !crowd_arrive(board, rank, job))
		;
	if (rank == 0)
		print_hash(job);
	OK(tierd_job_close(job));
	tierd_disconnect(node);
}

/* Whatever it is in the middle of. */
static void kill_last(struct crowd *crowd, unsigned long deaths)
{
	uint64_t seed = 1;

	for (unsigned long death = 0; death < deaths; death++) {
		while (crowd->board->steps[ranks - 1] < death + 1)
			crowd_check(crowd);
		crowd_pass_time(&seed, 30000);
		crowd_replace(crowd, (unsigned)ranks - 1);
	}
}

int main(int argc, char **argv)
{
	struct crowd crowd;

	REQUIRE(argc >= 4 && argc <= 6);
	gpus = argv[1];
	ranks = strlen(gpus);
	steps = strtoul(argv[2], NULL, 10);
	units_on_gpu = strtoul(argv[3], NULL, 10);
	/* All of a budget is for units. */
	fraction = argc > 5 ? strtof(argv[5], NULL) : 0;
	crowd_start(&crowd, (unsigned)ranks, 0, run, NULL);
	kill_last(&crowd, argc > 4 ? strtoul(argv[4], NULL, 10) : 0);
	crowd_finish(&crowd);
	crowd_free(&crowd);
	return 0;
}
