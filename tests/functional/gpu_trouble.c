/* A rank that gathers on a GPU where it can, and in host memory where it cannot: it says why, once, and its
 * values are the same.
 *
 * usage: gpu_trouble JOB STEPS GPU [blind]. It prints what it was refused first, how many units it had on the
 * GPU, and a sum over all values at the end. blind: it does not look at what its stream reads. 2: the job
 * cannot be opened so. */
#include <string.h>

#include "crash_support.h"
#include "on_gpu.h"

#define UNITS 3
#define ELEMENTS (1ul << 20)
#define READ_BYTES 4096ul

static struct on_gpu *gpu;
static bool is_told, is_blind;
static unsigned long found;

/* True: it is on the GPU, and the stream is to read it. */
static bool is_read(struct tierd_job *job, uint32_t unit)
{
	struct tierd_view view;
	int r = tierd_gather_on(job, unit, on_gpu_stream(gpu), &view);

	if (r < 0 && !is_told)
		printf("refused: %s: %s\n", strerrorname_np(-r), tierd_message());
	is_told |= r < 0;
	if (r < 0)
		return false;
	on_gpu_read(gpu, 0, tierd_at(&view, 0), READ_BYTES);
	OK(tierd_release_on(job, unit, on_gpu_stream(gpu)));
	found++;
	return true;
}

static void take_unit(struct tierd_job *job, uint32_t unit, uint64_t step)
{
	bool is_there = is_read(job, unit);
	struct tierd_view view;

	OK(tierd_gather(job, unit, &view));
	if (is_there && !is_blind) {
		on_gpu_wait(gpu);
		REQUIRE(memcmp(on_gpu_memory(gpu), tierd_at(&view, 0), READ_BYTES) == 0);
	}
	OK(tierd_release(job, unit));
	OK(support_push(job, unit, ELEMENTS, (float)(unit + step)));
}

static uint64_t sum_of_all(struct tierd_job *job)
{
	uint64_t sum = 0;

	for (uint32_t unit = 0; unit < UNITS; unit++) {
		struct tierd_view view;

		OK(tierd_gather(job, unit, &view));
		for (unsigned long i = 0; i < ELEMENTS; i++)
			sum = sum * 31 + ((const uint32_t *)tierd_at(&view, 0))[i];
		OK(tierd_release(job, unit));
	}
	return sum;
}

int main(int argc, char **argv)
{
	struct tierd_node *node = support_connect();
	struct tierd_job_options options = support_options(argv[1], 0, 1);
	struct tierd_rates rates = support_rates(0.01f);
	struct tierd_job *job;
	int r;

	REQUIRE(argc >= 4);
	is_blind = argc > 4;
	options.gpu = (int32_t)strtol(argv[3], NULL, 10);
	options.mode = TIERD_REPLACE;
	options.seed = 1;
	r = tierd_job_open(node, &options, &job);
	if (r < 0) {
		printf("refused: %s: %s\n", strerrorname_np(-r), tierd_message());
		tierd_disconnect(node);
		return 2;
	}
	support_define_all(job, UNITS, TIERD_FP32, ELEMENTS, 1, 0.5);
	OK(tierd_job_ready(job, -1, NULL));
	gpu = on_gpu_new(options.gpu, READ_BYTES);
	for (uint64_t step = 0; step < strtoul(argv[2], NULL, 10); step++) {
		for (uint32_t unit = 0; unit < UNITS; unit++)
			take_unit(job, unit, step);
		OK(tierd_step(job, &rates, NULL));
	}
	printf("on the GPU: %lu\nsum: %llu\n", found, (unsigned long long)sum_of_all(job));
	OK(tierd_job_close(job));
	tierd_disconnect(node);
	return 0;
}
