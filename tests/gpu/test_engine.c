/* The GPU engine on a real driver: bits of copies, their order, memory that runs out, host memory that is
 * pinned, and two jobs on one GPU. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "common/clock.h"
#include "tests/gpu/hardware_engine.h"

#define MIB ((size_t)1 << 20)
#define HOST_BYTES (64 * MIB)

static struct gpu_fixture fixture;
static struct gpu_memory memory;
static unsigned char *host;

static int open_memory(void **state)
{
	engines_open(&fixture);
	host = host_new(HOST_BYTES);
	assert_int_equal(gpu_memory_create_now(fixture.engines[0], &memory, HOST_BYTES), 0);
	return 0;
}

static int close_memory(void **state)
{
	assert_int_equal(gpu_memory_destroy_now(fixture.engines[0], &memory), 0);
	munmap(host, HOST_BYTES);
	assert_int_equal(fixture.failures, 0);
	gpu_fixture_close(&fixture);
	return 0;
}

static void rounds_of_all_sizes(void)
{
	const size_t sizes[] = { 1, 3, 4095, 4097, GPU_PIECE_BYTES - 1, GPU_PIECE_BYTES + 3, 30 * MIB + 7 };

	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		expect_round(fixture.engines[0], host + 5, memory.address + 1, sizes[i], i);
}

static void bytes_come_back_from_pinned_and_other_memory(void **state)
{
	struct gpu_pin pin;

	rounds_of_all_sizes();
	assert_int_equal(gpu_pin_add_now(fixture.engines[0], &pin, host, HOST_BYTES), 0);
	rounds_of_all_sizes();
	assert_int_equal(gpu_pin_remove_now(fixture.engines[0], &pin), 0);
}

static void bytes_are_copied_within_the_gpu(void **state)
{
	size_t bytes = GPU_PIECE_BYTES + 3;
	driver_address there = memory.address + HOST_BYTES / 2 + 7;
	struct gpu_engine *engine = fixture.engines[0];
	unsigned char *out = host + HOST_BYTES / 2;

	host_fill(host, bytes, 1);
	assert_int_equal(gpu_copy_now(engine, GPU_FROM_HOST, memory.address + 1, host_address(host), bytes),
			 0);
	assert_int_equal(gpu_copy_now(engine, GPU_TO_GPU, there, memory.address + 1, bytes), 0);
	assert_int_equal(gpu_copy_now(engine, GPU_TO_HOST, host_address(out), there, bytes), 0);
	assert_memory_equal(host, out, bytes);
}

/* It begins when pieces that are on their way have ended, not when all have that were asked for before. */
static void a_demand_overtakes_prefetches(void **state)
{
	struct test_copy prefetches[16], demand;
	struct gpu_pin pin;
	uint64_t begun_ns;

	assert_int_equal(gpu_pin_add_now(fixture.engines[0], &pin, host, HOST_BYTES), 0);
	for (unsigned i = 0; i < 16; i++) {
		test_copy_init(&prefetches[i], GPU_FROM_HOST, memory.address, host_address(host), HOST_BYTES);
		prefetches[i].copy.priority = TIER_PREFETCH;
		gpu_copy_submit(fixture.engines[0], &prefetches[i].copy);
	}
	test_copy_init(&demand, GPU_FROM_HOST, memory.address, host_address(host), 4096);
	demand.copy.priority = TIER_DEMAND;
	begun_ns = clock_now_ns();
	gpu_copy_submit(fixture.engines[0], &demand.copy);
	assert_int_equal(test_copy_wait(fixture.engines[0], &demand), 0);
	print_message("a demand read beside prefetches took %.0f us\n",
		      (double)(clock_now_ns() - begun_ns) / 1e3);
	for (unsigned i = 0; i < 16; i++)
		assert_int_equal(test_copy_wait(fixture.engines[0], &prefetches[i]), 0);
	assert_true(demand.order < prefetches[15].order);
	assert_int_equal(gpu_pin_remove_now(fixture.engines[0], &pin), 0);
}

static void memory_that_runs_out_is_said(void **state)
{
	struct gpu_memory much;
	size_t before = gpu_free_bytes(&fixture);

	assert_int_equal(
		gpu_memory_create_now(fixture.engines[0], &much, fixture.gpus.gpus[0].bytes + 1024 * MIB),
		-ENOMEM);
	print_message("%s\n", much.request.problem.text);
	assert_non_null(strstr(much.request.problem.text, "MiB are free"));
	assert_true(gpu_free_bytes(&fixture) + HOST_BYTES > before);
	expect_round(fixture.engines[0], host, memory.address, 4097, 1);
}

static void almost_all_memory_is_had_and_given_back(void **state)
{
	size_t before = gpu_free_bytes(&fixture);
	struct gpu_memory most, more;

	assert_int_equal(gpu_memory_create_now(fixture.engines[0], &most, before - 512 * MIB), 0);
	assert_int_equal(gpu_memory_create_now(fixture.engines[1], &more, 1024 * MIB), -ENOMEM);
	expect_round(fixture.engines[1], host, most.address + most.bytes - 4097, 4097, 1);
	assert_int_equal(gpu_memory_destroy_now(fixture.engines[0], &most), 0);
	assert_true(gpu_free_bytes(&fixture) + HOST_BYTES > before);
}

/* The driver takes no copy of two registrations at once. */
static void a_copy_crosses_what_is_pinned_in_pieces(void **state)
{
	unsigned char *space = host_new(4 * GPU_PIN_BYTES);
	uintptr_t boundary = ((uintptr_t)space / GPU_PIN_BYTES + 2) * GPU_PIN_BYTES;
	unsigned char *base = (unsigned char *)boundary - GPU_PIN_BYTES / 2;
	struct gpu_pin pin, twice;

	assert_int_equal(gpu_pin_add_now(fixture.engines[0], &pin, base, GPU_PIN_BYTES), 0);
	assert_int_equal(gpu_pin_add_now(fixture.engines[1], &twice, base + 4096, 4096), -EEXIST);
	expect_round(fixture.engines[0], (unsigned char *)boundary - 5000, memory.address, 10000, 1);
	assert_int_equal(gpu_pin_remove_now(fixture.engines[0], &pin), 0);
	munmap(space, 4 * GPU_PIN_BYTES);
}

/* Also when the engine has gone that was the first to pin it. */
static void memory_is_pinned_until_the_last_engine_lets_go(void **state)
{
	struct gpu_pin first, second;

	assert_int_equal(gpu_pin_add_now(fixture.engines[1], &first, host, HOST_BYTES), 0);
	assert_int_equal(gpu_pin_add_now(fixture.engines[0], &second, host, HOST_BYTES), 0);
	assert_int_equal(gpu_pin_remove_now(fixture.engines[1], &first), 0);
	fixture.engines[1] = gpu_engine_free(fixture.engines[1]);
	assert_true(is_pinned(host) && is_pinned(host + HOST_BYTES - 4096));
	expect_round(fixture.engines[0], host, memory.address, 4097, 1);
	assert_int_equal(gpu_pin_remove_now(fixture.engines[0], &second), 0);
	assert_false(is_pinned(host) || is_pinned(host + HOST_BYTES - 4096));
}

static void two_jobs_copy_at_once(void **state)
{
	size_t half = HOST_BYTES / 2;
	struct gpu_memory other;
	struct test_copy in[2];

	assert_int_equal(gpu_memory_create_now(fixture.engines[1], &other, half), 0);
	host_fill(host, half, 1);
	for (unsigned round = 0; round < 8; round++) {
		const driver_address to[] = { memory.address, other.address };

		for (unsigned i = 0; i < 2; i++) {
			test_copy_init(&in[i], GPU_FROM_HOST, to[i], host_address(host), half);
			gpu_copy_submit(fixture.engines[i], &in[i].copy);
		}
		for (unsigned i = 0; i < 2; i++)
			assert_int_equal(test_copy_wait(fixture.engines[i], &in[i]), 0);
	}
	for (unsigned i = 0; i < 2; i++) {
		const driver_address from[] = { memory.address, other.address };

		memset(host + half, 0, half);
		assert_int_equal(gpu_copy_now(fixture.engines[i], GPU_TO_HOST, host_address(host + half),
					      from[i], half),
				 0);
		assert_memory_equal(host, host + half, half);
	}
	assert_int_equal(gpu_memory_destroy_now(fixture.engines[1], &other), 0);
}

/* The engine goes back to the context in which it registered memory. Whether it has to is asked here. */
static void memory_is_unregistered_in_the_context_that_registered_it(void **state)
{
	int (*create_context)(void **ret_context, unsigned flags, int device);
	const struct dynamic_symbol symbol = { "cuCtxCreate_v2", &create_context };
	struct dynamic_library library;
	void *other;
	int error;

	if (!dynamic_library_open(&library, "libcuda.so.1", &symbol, 1)) {
		print_message("skipped: %s\n", library.problem);
		skip();
	}
	hardware_enter();
	hardware_expect(hardware_driver.host_register(host, HOST_BYTES, DRIVER_PORTABLE));
	hardware_expect(create_context(&other, 0, 0));
	error = hardware_driver.host_unregister(host);
	print_message("asked: cuMemHostUnregister in another context: %s (error %d)\n",
		      driver_text(&hardware_driver, error), error);
	hardware_enter();
	if (error != DRIVER_DONE)
		hardware_expect(hardware_driver.host_unregister(host));
	assert_false(is_pinned(host));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_memory, close_memory)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(bytes_come_back_from_pinned_and_other_memory),
		TEST(bytes_are_copied_within_the_gpu),
		TEST(a_demand_overtakes_prefetches),
		TEST(memory_that_runs_out_is_said),
		TEST(almost_all_memory_is_had_and_given_back),
		TEST(a_copy_crosses_what_is_pinned_in_pieces),
		TEST(memory_is_pinned_until_the_last_engine_lets_go),
		TEST(two_jobs_copy_at_once),
		TEST(memory_is_unregistered_in_the_context_that_registered_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
