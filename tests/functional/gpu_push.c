/* Ranks that push gradients from the memory of GPUs, which a stand-in plays: what comes of it has the bits
 * of what comes of the same gradients in host memory, also where ranks are killed.
 *
 * usage: gpu_push RANKS STAGE FORMAT BUDGET_MIB PLACES [DEATHS], with FORMAT fp32, bf16, fp16 or wide (bf16
 * whose gradients are fp32), and PLACES gpu, mixed (then some of the pushes come from host memory), some
 * (then some ranks do not push some units), updated (then the GPU makes updates, too), or several (then ranks
 * are on two GPUs in turn, and take more steps). So often the last rank is killed, and another one comes. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "crash_support.h"
#include "offload/cuda/driver.h"

#define UNITS 5
#define TENSORS 2
#define ELEMENTS 30001ul
#define FEW_ELEMENTS 333ul
#define MICRO_BATCHES 2
#define READ_BYTES 4096ul

static struct driver driver;
static struct driver_stream *stream;
static unsigned long ranks, stage, budget_mib, steps = 4;
static uint32_t format = TIERD_FP32, gradient_format;
static bool is_mixed, are_some, is_updated, are_several;

/* What streams copy from, which must stay as it is until they have. */
static struct source {
	float values[ELEMENTS];
	uint16_t halves[ELEMENTS];
} sources[UNITS][MICRO_BATCHES][TENSORS] __attribute__((aligned(4096)));
static unsigned char parameters[READ_BYTES] __attribute__((aligned(4096)));

static const unsigned long elements[TENSORS] = { ELEMENTS, FEW_ELEMENTS };

static int gpu_of(unsigned rank)
{
	return are_several ? (int)(rank % 2) : 0;
}

static void open_gpu(int gpu)
{
	struct dynamic_library library = { 0 };
	struct driver_context *context;

	REQUIRE(driver_open(&driver, &library));
	REQUIRE(driver.context_retain(&context, gpu) == DRIVER_DONE);
	REQUIRE(driver.context_enter(context) == DRIVER_DONE);
	REQUIRE(driver.host_register(sources, sizeof(sources), 0) == DRIVER_DONE);
	REQUIRE(driver.host_register(parameters, sizeof(parameters), 0) == DRIVER_DONE);
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

static struct tierd_job *join(struct tierd_node *node, unsigned rank, const char *name, bool has_gpu)
{
	struct tierd_job_options options = support_options(name, rank, (uint32_t)ranks);
	struct tierd_tensor tensors[TENSORS] = { TIERD_TENSOR_INIT, TIERD_TENSOR_INIT };
	char unit[16], names[TENSORS][16];
	struct tierd_job *job;

	options.stage = (uint32_t)stage;
	options.clip_norm = 1.0f;
	options.gpu = has_gpu ? gpu_of(rank) : -1;
	options.gpu_budget = budget_mib << 20;
	options.gpu_gradients = has_gpu;
	options.gpu_update = has_gpu && is_updated ? 1 : 0;
	OK(tierd_job_open(node, &options, &job));
	for (unsigned i = 0; i < UNITS; i++) {
		for (unsigned t = 0; t < TENSORS; t++) {
			snprintf(names[t], sizeof(names[t]), "u%u.%u", i, t);
			tensors[t].name = names[t];
			tensors[t].format = format;
			tensors[t].gradient_format = gradient_format;
			tensors[t].dimensions = 1;
			tensors[t].shape[0] = elements[t];
			tensors[t].initializer = TIERD_INITIALIZE_NORMAL;
			tensors[t].a = 1 + i;
			tensors[t].b = 0.1;
		}
		snprintf(unit, sizeof(unit), "u%u", i);
		OK(tierd_unit_define(job, unit, tensors, TENSORS, NULL));
	}
	return job;
}

/* ---- Gradients ---- */

static bool is_wide(void)
{
	return format == TIERD_FP32 || gradient_format == TIERD_FP32;
}

static const struct source *make_source(unsigned rank, uint64_t step, unsigned unit, unsigned micro_batch,
					unsigned tensor)
{
	uint64_t seed =
		((((step * UNITS + unit) * MICRO_BATCHES + micro_batch) * TENSORS + tensor) << 8) + rank;
	struct source *source = &sources[unit][micro_batch][tensor];

	for (unsigned long i = 0; i < elements[tensor]; i++) {
		int64_t number = (int64_t)(support_random(&seed) >> 20) - (1ll << 43);

		source->values[i] = (float)number / (float)(1ll << (40 + i % 7));
		/* Of fp16 these are others, as good. */
		support_put(source->halves, TIERD_BF16, i, source->values[i]);
	}
	return source;
}

/* Some tensors have no gradient, and some buffers have zeros. */
struct push {
	unsigned rank, unit, micro_batch;
	uint64_t step;
};

static bool lacks_second(const struct push *push)
{
	return (push->step + push->unit + push->rank) % 3 == 0;
}

static bool leaves_second(const struct push *push)
{
	return (push->step + push->micro_batch) % 2 == 0;
}

static bool is_from_gpu(const struct push *push)
{
	return !is_mixed || (push->unit + push->rank + push->micro_batch) % 3 != 0;
}

static bool is_left_out(const struct push *push)
{
	return are_some && (push->step + push->unit) % (ranks + 1) == push->rank;
}

static int write_tensor(const struct tierd_view *view, const struct push *push, unsigned tensor, bool on_gpu)
{
	const struct source *source =
		make_source(push->rank, push->step, push->unit, push->micro_batch, tensor);
	const void *from = is_wide() ? (const void *)source->values : source->halves;
	size_t bytes = elements[tensor] * (is_wide() ? 4 : 2);

	if (on_gpu)
		return driver.copy((uintptr_t)tierd_at(view, tensor), (uintptr_t)from, bytes, stream);
	memcpy(tierd_at(view, tensor), from, bytes);
	return 0;
}

static int push_unit(struct tierd_job *job, const struct push *push, bool on_gpu)
{
	const bool absent[TENSORS] = { false, lacks_second(push) };
	uint32_t flags = leaves_second(push) ? 0 : TIERD_GRADIENTS_OVERWRITE;
	struct tierd_view view;
	int r;

	r = on_gpu ? tierd_gradients_on(job, push->unit, flags, stream, &view)
		   : tierd_gradients_with(job, push->unit, flags, &view);
	if (r < 0)
		return r;
	for (unsigned tensor = 0; tensor < TENSORS; tensor++)
		if (tensor == 0 || !leaves_second(push))
			REQUIRE(write_tensor(&view, push, tensor, on_gpu) == 0);
	return on_gpu ? tierd_push_on(job, push->unit, absent, TENSORS, stream, NULL)
		      : tierd_push_with(job, push->unit, absent, TENSORS, NULL);
}

/* ---- Training ---- */

static bool forward(struct tierd_job *job)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		struct tierd_view view;

		TRY(tierd_gather_on(job, unit, stream, &view));
		REQUIRE(driver.copy((uintptr_t)parameters, (uintptr_t)tierd_at(&view, 0), READ_BYTES,
				    stream) == DRIVER_DONE);
		OK(tierd_release_on(job, unit, stream));
	}
	return true;
}

static bool take_step(struct tierd_job *job, unsigned rank, uint64_t step, bool has_gpu)
{
	struct tierd_rates rates = support_rates(0.01f);

	for (unsigned micro_batch = 0; micro_batch < MICRO_BATCHES; micro_batch++) {
		if (has_gpu && !forward(job))
			return false;
		for (unsigned unit = UNITS; unit-- > 0;) {
			const struct push push = { rank, unit, micro_batch, step };

			if (is_left_out(&push))
				continue;
			TRY(push_unit(job, &push, has_gpu && is_from_gpu(&push)));
		}
	}
	TRY(tierd_step(job, &rates, NULL));
	return true;
}

/* With the process that has come so far. */
static void note_step(struct crowd_board *board, unsigned rank, uint64_t step)
{
	board->steps[rank] = (uint64_t)getpid() << 8 | step;
}

static bool train(struct crowd_board *board, unsigned rank, struct tierd_job *job, bool has_gpu)
{
	struct tierd_job_state state;

	TRY(tierd_job_ready(job, -1, &state));
	REQUIRE(!has_gpu || state.gpu_bytes > 0);
	for (uint64_t step = state.step; step < steps; step++) {
		if (has_gpu)
			note_step(board, rank, step);
		if (!take_step(job, rank, step, has_gpu))
			return false;
	}
	if (has_gpu)
		note_step(board, rank, steps);
	return true;
}

static bool compare(struct tierd_job *host, struct tierd_job *gpu)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	size_t bytes = format == TIERD_FP32 ? 4 : 2;

	TRY(tierd_statistics(gpu, &statistics));
	REQUIRE((statistics.job_gpu_state_bytes > 0) == is_updated);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		struct tierd_view one, other;

		TRY(tierd_gather(host, unit, &one));
		TRY(tierd_gather(gpu, unit, &other));
		REQUIRE(one.version == steps && other.version == steps);
		for (unsigned tensor = 0; tensor < TENSORS; tensor++)
			REQUIRE(memcmp(tierd_at(&one, tensor), tierd_at(&other, tensor),
				       elements[tensor] * bytes) == 0);
		OK(tierd_release(host, unit));
		OK(tierd_release(gpu, unit));
	}
	return true;
}

static void run(struct crowd_board *board, unsigned rank, void *argument)
{
	struct tierd_node *node = support_connect();
	struct tierd_job *host = join(node, rank, "host", false), *gpu = join(node, rank, "gpu", true);

	open_gpu(gpu_of(rank));
	while (!train(board, rank, host, false) || !train(board, rank, gpu, true) || !compare(host, gpu) ||
	       !crowd_arrive(board, rank, gpu))
		;
	OK(tierd_job_close(gpu));
	OK(tierd_job_close(host));
	tierd_disconnect(node);
}

/* Whatever it is in the middle of, once it has taken a step: before that the other ranks may wait in one of
 * the jobs for who waits for them in the other. */
static void kill_last(struct crowd *crowd, unsigned long deaths)
{
	uint64_t seed = 1, killed = 0, taken;

	for (unsigned long death = 0; death < deaths; death++) {
		for (taken = 0; (taken & 0xff) < 1 || taken >> 8 == killed;
		     taken = crowd->board->steps[ranks - 1])
			crowd_check(crowd);
		killed = taken >> 8;
		crowd_pass_time(&seed, 30000);
		crowd_replace(crowd, (unsigned)ranks - 1);
	}
}

int main(int argc, char **argv)
{
	struct crowd crowd;

	REQUIRE(argc == 6 || argc == 7);
	ranks = strtoul(argv[1], NULL, 10);
	stage = strtoul(argv[2], NULL, 10);
	format = strcmp(argv[3], "fp32") == 0	? TIERD_FP32
		 : strcmp(argv[3], "fp16") == 0 ? TIERD_FP16
						: TIERD_BF16;
	gradient_format = strcmp(argv[3], "wide") == 0 ? TIERD_FP32 : 0;
	budget_mib = strtoul(argv[4], NULL, 10);
	is_mixed = strcmp(argv[5], "mixed") == 0;
	are_some = strcmp(argv[5], "some") == 0;
	is_updated = strcmp(argv[5], "updated") == 0;
	are_several = strcmp(argv[5], "several") == 0;
	if (are_several)
		steps = 12;
	crowd_start(&crowd, (unsigned)ranks, 0, run, NULL);
	kill_last(&crowd, argc > 6 ? strtoul(argv[6], NULL, 10) : 0);
	crowd_finish(&crowd);
	crowd_free(&crowd);
	return 0;
}
