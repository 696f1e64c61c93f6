/* Programs of a GPU engine: their order, their end, and which kernels a driver takes. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/unit/cuda/gpu_support.h"

#define BYTES ((size_t)1 << 12)
#define HOST_BYTES ((size_t)1 << 20)

/* In to the GPU, a kernel there, and out. */
struct test_program {
	struct gpu_program program;
	struct gpu_step steps[3];
	struct add_arguments add;
	struct gpu_ending ending;
	unsigned order;
};

struct stage {
	struct gpu_fixture fixture;
	struct gpu_engine *engine;
	struct driver_function *function;
	struct gpu_kernels kernels;
	struct gpu_memory memory;
	struct gpu_event event;
	unsigned char *host;
	struct gpu_pin pin;
};

static void stage_open(struct stage *stage)
{
	*stage = (struct stage){ 0 };
	gpu_fixture_open(&stage->fixture);
	stage->engine = stage->fixture.engines[0];
	stage->kernels = (struct gpu_kernels){
		.image = &add_image, .count = 1, .names = add_names, .functions = &stage->function
	};
	assert_int_equal(gpu_kernels_load_now(stage->engine, &stage->kernels), 0);
	assert_int_equal(gpu_memory_create_now(stage->engine, &stage->memory, HOST_BYTES), 0);
	assert_int_equal(gpu_event_create_now(stage->engine, &stage->event), 0);
	stage->host = mmap(NULL, HOST_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(stage->host != MAP_FAILED);
	assert_int_equal(gpu_pin_add_now(stage->engine, &stage->pin, stage->host, HOST_BYTES), 0);
}

static void stage_close(struct stage *stage)
{
	assert_int_equal(gpu_pin_remove_now(stage->engine, &stage->pin), 0);
	assert_int_equal(gpu_event_close_now(stage->engine, &stage->event), 0);
	assert_int_equal(gpu_memory_destroy_now(stage->engine, &stage->memory), 0);
	assert_int_equal(gpu_kernels_unload_now(stage->engine, &stage->kernels), 0);
	gpu_fixture_close(&stage->fixture);
	munmap(stage->host, HOST_BYTES);
}

static void note_end(struct gpu_request *request, int status)
{
	static unsigned order;
	struct test_program *test = container_of(request, struct test_program, program.request);

	test->ending.count++;
	test->ending.status = status;
	test->order = ++order;
}

/* Adds to a number of bytes of host memory, at a place of the GPU's that all programs of the stream have. */
static void submit(struct stage *stage, struct test_program *test, unsigned stream, unsigned char *bytes,
		   struct gpu_event *after)
{
	driver_address here = stage->memory.address + stream * 2 * BYTES;

	test->add = (struct add_arguments){ .to = here + BYTES, .from = here, .count = BYTES, .value = 3 };
	test->steps[0] = (struct gpu_step){
		.direction = GPU_FROM_HOST, .to = here, .from = host_address(bytes), .bytes = BYTES
	};
	test->steps[1] = (struct gpu_step){ .function = stage->function,
					    .arguments = &test->add,
					    .blocks = BYTES / ADD_THREADS,
					    .threads = ADD_THREADS };
	test->steps[2] = (struct gpu_step){
		.direction = GPU_TO_HOST, .to = host_address(bytes), .from = here + BYTES, .bytes = BYTES
	};
	test->program = (struct gpu_program){ .request = { .done = note_end },
					      .stream = stream,
					      .after = after,
					      .count = 3,
					      .steps = test->steps };
	test->ending = (struct gpu_ending){ 0 };
	gpu_program_submit(stage->engine, &test->program);
}

static int wait_for(struct stage *stage, struct test_program *test)
{
	while (test->ending.count == 0)
		gpu_reap_once(stage->engine);
	assert_int_equal(test->ending.count, 1);
	return test->ending.status;
}

static void assert_all(const unsigned char *bytes, unsigned char value)
{
	for (size_t i = 0; i < BYTES; i++)
		assert_int_equal(bytes[i], value);
}

#define PROGRAMS 12

/* Four of each stream, on the same memory of the GPU. */
static void programs_of_a_stream_wait_for_one_another(void **state)
{
	struct test_program tests[PROGRAMS];
	struct stage stage;

	stage_open(&stage);
	for (unsigned i = 0; i < PROGRAMS; i++) {
		memset(stage.host + i * BYTES, (int)i, BYTES);
		submit(&stage, &tests[i], i % GPU_STREAMS, stage.host + i * BYTES, NULL);
	}
	for (unsigned i = 0; i < PROGRAMS; i++) {
		assert_int_equal(wait_for(&stage, &tests[i]), 0);
		assert_all(stage.host + i * BYTES, (unsigned char)(i + 3));
		if (i >= GPU_STREAMS)
			assert_true(tests[i - GPU_STREAMS].order < tests[i].order);
	}
	stage_close(&stage);
}

/* The same bytes of the host, so that each adds to what the last one has made. */
static void a_stream_does_programs_in_their_order(void **state)
{
	struct test_program tests[PROGRAMS];
	struct stage stage;

	stage_open(&stage);
	for (unsigned i = 0; i < PROGRAMS; i++)
		submit(&stage, &tests[i], 1, stage.host, NULL);
	for (unsigned i = 0; i < PROGRAMS; i++)
		assert_int_equal(wait_for(&stage, &tests[i]), 0);
	assert_all(stage.host, 3 * PROGRAMS);
	stage_close(&stage);
}

/* The event is behind a copy that has not arrived. */
static void hold_event(struct stage *stage, struct test_copy *copy)
{
	test_copy_init(copy, GPU_FROM_HOST, stage->memory.address + HOST_BYTES / 2,
		       host_address(stage->host + HOST_BYTES / 2), 1);
	copy->copy.behind = &stage->event;
	standin_hold(true);
	gpu_copy_submit(stage->engine, &copy->copy);
	while (copy->recorded == 0)
		gpu_reap_once(stage->engine);
}

/* Engine and driver know of all that was submitted. */
static void know(struct stage *stage)
{
	struct gpu_event other;

	assert_int_equal(gpu_event_create_now(stage->engine, &other), 0);
	assert_int_equal(gpu_event_close_now(stage->engine, &other), 0);
}

static void a_program_waits_for_an_event(void **state)
{
	struct test_program waits, never, passes;
	struct test_copy copy;
	struct stage stage;

	stage_open(&stage);
	hold_event(&stage, &copy);
	submit(&stage, &waits, 0, stage.host, &stage.event);
	submit(&stage, &never, 0, stage.host, &stage.event);
	submit(&stage, &passes, 0, stage.host, NULL);
	know(&stage);
	gpu_program_cancel(stage.engine, &never.program);
	assert_int_equal(wait_for(&stage, &never), -ECANCELED);
	assert_int_equal(waits.ending.count + passes.ending.count, 0);
	standin_hold(false);
	assert_int_equal(wait_for(&stage, &passes), 0);
	assert_int_equal(wait_for(&stage, &waits), 0);
	assert_true(passes.order < waits.order);
	assert_all(stage.host, 6);
	assert_int_equal(test_copy_wait(stage.engine, &copy), 0);
	stage_close(&stage);
}

/* Of a stream two are on their way: it is too late for these. */
static void a_program_that_waits_is_cancelled(void **state)
{
	struct test_program tests[3];
	struct stage stage;

	stage_open(&stage);
	standin_hold(true);
	for (unsigned i = 0; i < 3; i++)
		submit(&stage, &tests[i], 2, stage.host, NULL);
	know(&stage);
	for (unsigned i = 0; i < 3; i++)
		gpu_program_cancel(stage.engine, &tests[i].program);
	assert_int_equal(wait_for(&stage, &tests[2]), -ECANCELED);
	assert_int_equal(tests[0].ending.count + tests[1].ending.count, 0);
	standin_hold(false);
	assert_int_equal(wait_for(&stage, &tests[0]), 0);
	assert_int_equal(wait_for(&stage, &tests[1]), 0);
	assert_all(stage.host, 6);
	stage_close(&stage);
}

/* A demand read does not stand in line behind what updates. */
static void copies_pass_programs(void **state)
{
	struct test_program tests[PROGRAMS];
	struct test_copy copy;
	struct stage stage;

	stage_open(&stage);
	standin_hold(true);
	for (unsigned i = 0; i < PROGRAMS; i++)
		submit(&stage, &tests[i], i % GPU_STREAMS, stage.host + i * BYTES, NULL);
	know(&stage);
	hold_event(&stage, &copy);
	for (unsigned i = 0; i < PROGRAMS; i++)
		assert_int_equal(tests[i].ending.count, 0);
	standin_hold(false);
	assert_int_equal(test_copy_wait(stage.engine, &copy), 0);
	for (unsigned i = 0; i < PROGRAMS; i++)
		assert_int_equal(wait_for(&stage, &tests[i]), 0);
	stage_close(&stage);
}

/* The driver takes no copy of two registrations at once. */
static void a_program_copies_across_what_is_pinned_in_pieces(void **state)
{
	unsigned char *space = mmap(NULL, 3 * GPU_PIN_BYTES, PROT_READ | PROT_WRITE,
				    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	unsigned char *boundary =
		(unsigned char *)(((uintptr_t)space + 2 * GPU_PIN_BYTES) / GPU_PIN_BYTES * GPU_PIN_BYTES);
	struct test_program test;
	struct stage stage;
	struct gpu_pin pin;

	assert_true(space != MAP_FAILED);
	stage_open(&stage);
	assert_int_equal(gpu_pin_add_now(stage.engine, &pin, boundary - 2 * BYTES, 4 * BYTES), 0);
	submit(&stage, &test, 0, boundary - BYTES / 2, NULL);
	assert_int_equal(wait_for(&stage, &test), 0);
	assert_all(boundary - BYTES / 2, 3);
	assert_int_equal(gpu_pin_remove_now(stage.engine, &pin), 0);
	stage_close(&stage);
	munmap(space, 3 * GPU_PIN_BYTES);
}

static const struct standin_image other_image = { .magic = UINT64_C(0x1b8e0e2c41524e56) };

static void expect_no_kernels(const void *image, const char *text)
{
	struct driver_function *function;
	struct gpu_fixture fixture;
	struct gpu_memory memory;
	struct gpu_kernels kernels = {
		.image = image, .count = 1, .names = add_names, .functions = &function
	};

	gpu_fixture_open(&fixture);
	assert_int_equal(gpu_kernels_load_now(fixture.engines[0], &kernels), -ENOEXEC);
	assert_non_null(strstr(kernels.request.problem.text, text));
	assert_null(kernels.module);
	/* All else goes on. */
	assert_int_equal(gpu_kernels_unload_now(fixture.engines[0], &kernels), 0);
	assert_int_equal(gpu_memory_create_now(fixture.engines[0], &memory, 1), 0);
	assert_int_equal(
		gpu_copy_now(fixture.engines[0], GPU_FROM_HOST, memory.address, host_address("x"), 1), 0);
	assert_int_equal(gpu_memory_destroy_now(fixture.engines[0], &memory), 0);
	assert_int_equal(fixture.failures, 0);
	gpu_fixture_close(&fixture);
}

static void a_driver_does_not_take_the_kernels(void **state)
{
	standin_tell("STANDIN_CUDA", "12040");
	expect_no_kernels(
		&other_image,
		"GPU 0 (stand-in): its driver, for CUDA 12.4, does not take tierd's kernels: the "
		"stand-in's error 200 (error 200); update it, or build tierd with nvcc of that CUDA");
	standin_tell("STANDIN_CUDA", NULL);
	standin_tell("STANDIN_CAPABILITY", "7");
	expect_no_kernels(&other_image, "GPU 0 (stand-in): tierd has no kernels for it: they need compute "
					"capability 8.0, and it has 7.0");
	standin_tell("STANDIN_CAPABILITY", NULL);
	expect_no_kernels(
		NULL, "GPU 0 (stand-in): tierd was built without kernels for GPUs: build it where nvcc is");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(programs_of_a_stream_wait_for_one_another),
		cmocka_unit_test(a_stream_does_programs_in_their_order),
		cmocka_unit_test(a_program_waits_for_an_event),
		cmocka_unit_test(a_program_that_waits_is_cancelled),
		cmocka_unit_test(copies_pass_programs),
		cmocka_unit_test(a_program_copies_across_what_is_pinned_in_pieces),
		cmocka_unit_test(a_driver_does_not_take_the_kernels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
