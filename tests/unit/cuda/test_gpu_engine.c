/* Copies of a GPU engine: their bits, their order, and their end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/clock.h"
#include "tests/unit/cuda/gpu_support.h"

static unsigned char *new_bytes(size_t bytes)
{
	unsigned char *base =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_true(base != MAP_FAILED);
	return base;
}

static void fill(unsigned char *bytes, size_t count, unsigned seed)
{
	for (size_t i = 0; i < count; i++) {
		seed = seed * 1664525 + 1013904223;
		bytes[i] = (unsigned char)(seed >> 24);
	}
}

/* Host, GPU, another place of the GPU, host. */
static void go_round(struct gpu_fixture *fixture, unsigned char *host, driver_address memory, size_t bytes)
{
	unsigned char *in = host + 3, *out = host + MEMORY_BYTES / 2 + 5;
	driver_address here = memory + 1, there = memory + MEMORY_BYTES / 2 + 7;

	fill(in, bytes, (unsigned)bytes);
	memset(out - 1, 0, bytes + 2);
	assert_int_equal(gpu_copy_now(fixture->engines[0], GPU_FROM_HOST, here, host_address(in), bytes), 0);
	assert_int_equal(gpu_copy_now(fixture->engines[0], GPU_TO_GPU, there, here, bytes), 0);
	assert_int_equal(gpu_copy_now(fixture->engines[0], GPU_TO_HOST, host_address(out), there, bytes), 0);
	assert_memory_equal(in, out, bytes);
	assert_int_equal(out[-1], 0);
	assert_int_equal(out[bytes], 0);
}

static void go_round_by_sizes(struct gpu_fixture *fixture, unsigned char *host, driver_address memory)
{
	const size_t sizes[] = { 1, 4095, 4097, GPU_PIECE_BYTES - 1, GPU_PIECE_BYTES + 3 };

	for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++)
		go_round(fixture, host, memory, sizes[i]);
}

static void bytes_come_back_from_pinned_and_other_memory(void **state)
{
	unsigned char *host = new_bytes(MEMORY_BYTES);
	struct gpu_fixture fixture;
	struct gpu_memory memory;
	struct gpu_pin pin;

	gpu_fixture_open(&fixture);
	assert_int_equal(gpu_memory_create_now(fixture.engines[0], &memory, MEMORY_BYTES - 1), 0);
	assert_int_equal(memory.bytes, MEMORY_BYTES);
	go_round(&fixture, host, memory.address, 4097);
	assert_int_equal(gpu_pin_add_now(fixture.engines[0], &pin, host, MEMORY_BYTES), 0);
	go_round_by_sizes(&fixture, host, memory.address);
	assert_int_equal(gpu_pin_remove_now(fixture.engines[0], &pin), 0);
	assert_int_equal(gpu_memory_destroy_now(fixture.engines[0], &memory), 0);
	gpu_fixture_close(&fixture);
	munmap(host, MEMORY_BYTES);
}

/* The driver takes no copy of two registrations at once. */
static void a_copy_crosses_what_is_pinned_in_pieces(void **state)
{
	size_t bytes = GPU_PIN_BYTES;
	unsigned char *space = new_bytes(3 * GPU_PIN_BYTES), kept[10000];
	unsigned char *boundary =
		(unsigned char *)(((uintptr_t)space + 2 * GPU_PIN_BYTES) / GPU_PIN_BYTES * GPU_PIN_BYTES);
	unsigned char *host = boundary - GPU_PIN_BYTES / 2, *across = boundary - 5000;
	struct gpu_fixture fixture;
	struct gpu_memory memory;
	struct gpu_pin pin, twice;

	gpu_fixture_open(&fixture);
	assert_int_equal(gpu_memory_create_now(fixture.engines[1], &memory, sizeof(kept)), 0);
	assert_int_equal(gpu_pin_add_now(fixture.engines[0], &pin, host, bytes), 0);
	assert_int_equal(gpu_pin_add_now(fixture.engines[1], &twice, host + 4096, 4096), -EEXIST);
	assert_int_equal(gpu_pin_add_now(fixture.engines[1], &twice, host, 4096), -EEXIST);
	fill(across, sizeof(kept), 1);
	memcpy(kept, across, sizeof(kept));
	assert_int_equal(gpu_copy_now(fixture.engines[1], GPU_FROM_HOST, memory.address, host_address(across),
				      sizeof(kept)),
			 0);
	memset(across, 0, sizeof(kept));
	assert_int_equal(gpu_copy_now(fixture.engines[1], GPU_TO_HOST, host_address(across), memory.address,
				      sizeof(kept)),
			 0);
	assert_memory_equal(across, kept, sizeof(kept));
	assert_int_equal(gpu_pin_remove_now(fixture.engines[0], &pin), 0);
	assert_int_equal(gpu_pin_add_now(fixture.engines[0], &pin, host, bytes), 0);
	assert_int_equal(gpu_pin_remove_now(fixture.engines[0], &pin), 0);
	assert_int_equal(gpu_memory_destroy_now(fixture.engines[1], &memory), 0);
	gpu_fixture_close(&fixture);
	munmap(space, 3 * GPU_PIN_BYTES);
}

/* Also when the engine has gone that was the first to pin it. */
static void memory_is_pinned_until_the_last_engine_lets_go(void **state)
{
	size_t bytes = GPU_PIN_BYTES + 4096;
	unsigned char *host = new_bytes(bytes);
	struct gpu_fixture fixture;
	struct gpu_memory memory;
	struct gpu_pin first, second;

	gpu_fixture_open(&fixture);
	assert_int_equal(gpu_pin_add_now(fixture.engines[0], &first, host, bytes), 0);
	assert_int_equal(gpu_pin_add_now(fixture.engines[1], &second, host, bytes), 0);
	assert_int_equal(gpu_pin_remove_now(fixture.engines[0], &first), 0);
	fixture.engines[0] = gpu_engine_free(fixture.engines[0]);
	assert_true(gpu_has_pinned(host) && gpu_has_pinned(host + bytes - 1));
	assert_int_equal(gpu_memory_create_now(fixture.engines[1], &memory, 1), 0);
	assert_int_equal(
		gpu_copy_now(fixture.engines[1], GPU_FROM_HOST, memory.address, host_address(host), 1), 0);
	assert_int_equal(gpu_memory_destroy_now(fixture.engines[1], &memory), 0);
	assert_int_equal(gpu_pin_remove_now(fixture.engines[1], &second), 0);
	assert_false(gpu_has_pinned(host) || gpu_has_pinned(host + bytes - 1));
	gpu_fixture_close(&fixture);
	munmap(host, bytes);
}

static unsigned unpinned;

static void note_unpinned(struct gpu_request *request, int status)
{
	assert_int_equal(status, 0);
	unpinned++;
}

/* A GPU that is given other memory meanwhile does not wait for one that hangs. */
static void gpus_pin_memory_side_by_side(void **state)
{
	unsigned char *host = new_bytes(2 * GPU_PIN_BYTES);
	char path[] = "/tmp/tierd-pin-XXXXXX", setting[64];
	struct gpu_fixture fixture;
	struct gpu_pin first, second;
	struct stat status;
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	snprintf(setting, sizeof(setting), "cuMemHostUnregister=%s", path);
	gpu_fixture_open(&fixture);
	assert_int_equal(gpu_pin_add_now(fixture.engines[0], &first, host, 4096), 0);
	standin_tell("STANDIN_BLOCKS", setting);
	first.request.done = note_unpinned;
	gpu_pin_remove(fixture.engines[0], &first);
	do
		assert_int_equal(fstat(fd, &status), 0);
	while (status.st_size == 0);
	assert_int_equal(gpu_pin_add_now(fixture.engines[1], &second, host + GPU_PIN_BYTES, 4096), 0);
	assert_int_equal(unpinned, 0);
	unlink(path);
	close(fd);
	while (unpinned == 0)
		gpu_reap_once(fixture.engines[0]);
	standin_tell("STANDIN_BLOCKS", NULL);
	assert_int_equal(gpu_pin_remove_now(fixture.engines[1], &second), 0);
	gpu_fixture_close(&fixture);
	munmap(host, 2 * GPU_PIN_BYTES);
}

static void gpus_copy_from_one_another(void **state)
{
	unsigned char in[4097], out[4097];
	struct gpu_memory memories[2];
	struct gpu_fixture fixture;

	gpu_fixture_open(&fixture);
	assert_true(gpu_engine_reaches(fixture.engines[0], 1));
	assert_true(gpu_engine_reaches(fixture.engines[1], 1));
	assert_false(gpu_engine_reaches(fixture.engines[1], 2));
	for (unsigned gpu = 0; gpu < 2; gpu++)
		assert_int_equal(gpu_memory_create_now(fixture.engines[gpu], &memories[gpu], sizeof(in)), 0);
	fill(in, sizeof(in), 1);
	assert_int_equal(gpu_copy_now(fixture.engines[0], GPU_FROM_HOST, memories[0].address,
				      host_address(in), sizeof(in)),
			 0);
	assert_int_equal(gpu_copy_now(fixture.engines[1], GPU_TO_GPU, memories[1].address,
				      memories[0].address, sizeof(in)),
			 0);
	assert_int_equal(gpu_copy_now(fixture.engines[1], GPU_TO_HOST, host_address(out), memories[1].address,
				      sizeof(in)),
			 0);
	assert_memory_equal(in, out, sizeof(in));
	for (unsigned gpu = 0; gpu < 2; gpu++)
		assert_int_equal(gpu_memory_destroy_now(fixture.engines[gpu], &memories[gpu]), 0);
	gpu_fixture_close(&fixture);
}

static void gpus_do_not_reach_one_another(void **state)
{
	struct gpu_fixture fixture;
	struct gpu_memory memory;

	standin_tell("STANDIN_PEERS", "0");
	gpu_fixture_open(&fixture);
	assert_false(gpu_engine_reaches(fixture.engines[0], 1));
	assert_true(gpu_engine_reaches(fixture.engines[0], 0));
	assert_int_equal(gpu_memory_create_now(fixture.engines[0], &memory, 1), 0);
	assert_int_equal(gpu_memory_destroy_now(fixture.engines[0], &memory), 0);
	gpu_fixture_close(&fixture);
	standin_tell("STANDIN_PEERS", NULL);
}

/* A stream that does not move, with all pieces that it may have on their way. */
struct full {
	struct gpu_fixture fixture;
	struct gpu_memory memory;
	struct gpu_event event;
	unsigned char host[4096];
	struct gpu_pin pin;
	struct test_copy first[GPU_PIECES];
};

static void init_byte(struct full *full, struct test_copy *test, unsigned place)
{
	test_copy_init(test, GPU_FROM_HOST, full->memory.address + place, host_address(full->host + place),
		       1);
}

static void open_full(struct full *full, unsigned count)
{
	struct gpu_engine *engine;

	gpu_fixture_open(&full->fixture);
	engine = full->fixture.engines[0];
	assert_int_equal(gpu_memory_create_now(engine, &full->memory, MEMORY_BYTES), 0);
	assert_int_equal(gpu_event_create_now(engine, &full->event), 0);
	assert_int_equal(gpu_pin_add_now(engine, &full->pin, full->host, sizeof(full->host)), 0);
	standin_hold(true);
	for (unsigned i = 0; i < count; i++) {
		init_byte(full, &full->first[i], i);
		full->first[i].copy.behind = &full->event;
		gpu_copy_submit(engine, &full->first[i].copy);
	}
	for (unsigned i = 0; i < count; i++)
		while (full->first[i].recorded == 0)
			gpu_reap_once(engine);
}

/* The engine knows of all that was submitted. */
static void know(struct full *full)
{
	struct gpu_event other;

	assert_int_equal(gpu_event_create_now(full->fixture.engines[0], &other), 0);
	assert_int_equal(gpu_event_close_now(full->fixture.engines[0], &other), 0);
}

static void close_full(struct full *full, unsigned count)
{
	struct gpu_engine *engine = full->fixture.engines[0];

	for (unsigned i = 0; i < count; i++)
		assert_int_equal(test_copy_wait(engine, &full->first[i]), 0);
	assert_int_equal(gpu_pin_remove_now(engine, &full->pin), 0);
	assert_int_equal(gpu_event_close_now(engine, &full->event), 0);
	assert_int_equal(gpu_memory_destroy_now(engine, &full->memory), 0);
	gpu_fixture_close(&full->fixture);
}

static void a_demand_overtakes_what_waits(void **state)
{
	static const enum tier_priority given[] = { TIER_WRITE_BACK, TIER_WRITE_BACK, TIER_PREFETCH,
						    TIER_DEMAND,     TIER_IDLE,	      TIER_DEMAND,
						    TIER_PREFETCH };
	/* The second is raised to a prefetch. */
	static const unsigned expected[] = { 3, 5, 2, 6, 1, 0, 4 };
	struct test_copy tests[ARRAY_LENGTH(given)];
	struct full full;

	open_full(&full, GPU_PIECES);
	for (unsigned i = 0; i < ARRAY_LENGTH(given); i++) {
		init_byte(&full, &tests[i], GPU_PIECES + i);
		tests[i].copy.priority = given[i];
		gpu_copy_submit(full.fixture.engines[0], &tests[i].copy);
	}
	know(&full);
	gpu_copy_raise(full.fixture.engines[0], &tests[1].copy, TIER_PREFETCH);
	know(&full);
	standin_hold(false);
	for (unsigned i = 0; i < ARRAY_LENGTH(given); i++)
		assert_int_equal(test_copy_wait(full.fixture.engines[0], &tests[i]), 0);
	assert_true(full.first[GPU_PIECES - 1].order < tests[expected[0]].order);
	for (unsigned i = 1; i < ARRAY_LENGTH(given); i++)
		assert_true(tests[expected[i - 1]].order < tests[expected[i]].order);
	close_full(&full, GPU_PIECES);
}

static void directions_do_not_wait_for_one_another(void **state)
{
	struct test_copy test;
	struct full full;

	open_full(&full, GPU_PIECES);
	test_copy_init(&test, GPU_TO_HOST, host_address(full.host + 100), full.memory.address + 100, 7);
	test.copy.behind = &full.event;
	gpu_copy_submit(full.fixture.engines[0], &test.copy);
	while (test.recorded == 0)
		gpu_reap_once(full.fixture.engines[0]);
	assert_int_equal(full.first[0].ending.count, 0);
	standin_hold(false);
	assert_int_equal(test_copy_wait(full.fixture.engines[0], &test), 0);
	close_full(&full, GPU_PIECES);
}

static void traffic_is_counted(void **state)
{
	uint64_t began_ns = clock_now_ns();
	struct gpu_traffic traffic;
	struct full full;

	open_full(&full, 3);
	standin_hold(false);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(test_copy_wait(full.fixture.engines[0], &full.first[i]), 0);
	traffic = gpu_engine_traffic(full.fixture.engines[0], GPU_FROM_HOST);
	assert_int_equal(traffic.bytes, 3);
	assert_true(traffic.busy_ns > 0 && traffic.busy_ns <= clock_now_ns() - began_ns);
	assert_int_equal(gpu_engine_traffic(full.fixture.engines[0], GPU_TO_HOST).bytes, 0);
	assert_int_equal(gpu_engine_traffic(full.fixture.engines[1], GPU_FROM_HOST).bytes, 0);
	close_full(&full, 3);
}

static void a_copy_that_waits_is_cancelled(void **state)
{
	struct test_copy test;
	struct full full;

	open_full(&full, GPU_PIECES);
	init_byte(&full, &test, 100);
	gpu_copy_submit(full.fixture.engines[0], &test.copy);
	gpu_copy_cancel(full.fixture.engines[0], &test.copy);
	assert_int_equal(test_copy_wait(full.fixture.engines[0], &test), -ECANCELED);
	/* It is too late for these. */
	gpu_copy_cancel(full.fixture.engines[0], &full.first[0].copy);
	know(&full);
	standin_hold(false);
	close_full(&full, GPU_PIECES);
}

/* Its buffer is in use until what is on its way has arrived. */
static void a_copy_that_has_begun_is_cancelled(void **state)
{
	unsigned char *host = new_bytes(GPU_PIECE_BYTES * 2);
	struct test_copy test;
	struct gpu_pin pin;
	struct full full;

	open_full(&full, GPU_PIECES - 1);
	assert_int_equal(gpu_pin_add_now(full.fixture.engines[0], &pin, host, GPU_PIECE_BYTES * 2), 0);
	test_copy_init(&test, GPU_FROM_HOST, full.memory.address + 4096, host_address(host),
		       GPU_PIECE_BYTES * 2);
	gpu_copy_submit(full.fixture.engines[0], &test.copy);
	know(&full);
	gpu_copy_cancel(full.fixture.engines[0], &test.copy);
	know(&full);
	assert_int_equal(test.ending.count, 0);
	standin_hold(false);
	assert_int_equal(test_copy_wait(full.fixture.engines[0], &test), -ECANCELED);
	assert_true(gpu_engine_traffic(full.fixture.engines[0], GPU_FROM_HOST).bytes < GPU_PIECE_BYTES * 2);
	assert_int_equal(gpu_pin_remove_now(full.fixture.engines[0], &pin), 0);
	close_full(&full, GPU_PIECES - 1);
	munmap(host, GPU_PIECE_BYTES * 2);
}

/* Another stream, which it waits for. It may never come: copies behind it go on. */
static void a_copy_waits_for_an_event(void **state)
{
	struct test_copy waits, empty, never, other;
	struct full full;

	open_full(&full, 1);
	init_byte(&full, &waits, 10);
	init_byte(&full, &never, 11);
	init_byte(&full, &empty, 12);
	init_byte(&full, &other, 13);
	empty.copy.bytes = 0;
	empty.copy.behind = &full.event;
	waits.copy.after = never.copy.after = empty.copy.after = &full.event;
	other.copy.behind = &full.event;
	gpu_copy_submit(full.fixture.engines[0], &waits.copy);
	gpu_copy_submit(full.fixture.engines[0], &never.copy);
	gpu_copy_submit(full.fixture.engines[0], &empty.copy);
	gpu_copy_submit(full.fixture.engines[0], &other.copy);
	while (other.recorded == 0)
		gpu_reap_once(full.fixture.engines[0]);
	gpu_copy_cancel(full.fixture.engines[0], &never.copy);
	gpu_copy_raise(full.fixture.engines[0], &waits.copy, TIER_PREFETCH);
	assert_int_equal(test_copy_wait(full.fixture.engines[0], &never), -ECANCELED);
	assert_int_equal(waits.ending.count + empty.ending.count, 0);
	standin_hold(false);
	assert_int_equal(test_copy_wait(full.fixture.engines[0], &other), 0);
	assert_int_equal(test_copy_wait(full.fixture.engines[0], &waits), 0);
	assert_int_equal(test_copy_wait(full.fixture.engines[0], &empty), 0);
	assert_int_equal(empty.recorded, 1);
	assert_true(other.order < waits.order);
	close_full(&full, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_come_back_from_pinned_and_other_memory),
		cmocka_unit_test(a_copy_crosses_what_is_pinned_in_pieces),
		cmocka_unit_test(memory_is_pinned_until_the_last_engine_lets_go),
		cmocka_unit_test(gpus_pin_memory_side_by_side),
		cmocka_unit_test(gpus_copy_from_one_another),
		cmocka_unit_test(gpus_do_not_reach_one_another),
		cmocka_unit_test(a_demand_overtakes_what_waits),
		cmocka_unit_test(directions_do_not_wait_for_one_another),
		cmocka_unit_test(traffic_is_counted),
		cmocka_unit_test(a_copy_that_waits_is_cancelled),
		cmocka_unit_test(a_copy_that_has_begun_is_cancelled),
		cmocka_unit_test(a_copy_waits_for_an_event),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
