#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "common/clock.h"
#include "offload/device/engine_backend.h"
#include "offload/device/memory.h"
#include "offload/device/schedule.h"
#include "tests/unit/io_support.h"
#include "tests/unit/test.h"

#define CHUNK ((size_t)64 << 10)
#define CHUNKS 48

struct fixture {
	struct scratch scratch;
	struct io_loop loop;
	int fd, file;
};

static bool is_plain;

static int open_engine(struct fixture *fixture, unsigned queue_depth)
{
	struct engine_config config = { .queue_depth = queue_depth, .is_plain = is_plain };

	assert_int_equal(engine_new(&config, &fixture->loop.engine), 0);
	if (!is_plain && engine_why(fixture->loop.engine)) {
		print_message("%s\n", engine_why(fixture->loop.engine));
		fixture->loop.engine = engine_free(fixture->loop.engine);
		return -EOPNOTSUPP;
	}
	fixture->file = engine_file_add(fixture->loop.engine, fixture->fd, 0, &(struct tier_share){ 0 });
	assert_true(fixture->file >= 0);
	return 0;
}

static void open_fixture(struct fixture *fixture, unsigned queue_depth)
{
	*fixture = (struct fixture){ 0 };
	scratch_open(&fixture->scratch);
	fixture->fd = openat(fixture->scratch.fd, "file", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fixture->fd >= 0);
	/* Where the file system has no O_DIRECT the same is tested without. */
	(void)fcntl(fixture->fd, F_SETFL, O_DIRECT);
	unlinkat(fixture->scratch.fd, "file", 0);
	if (open_engine(fixture, queue_depth) == 0)
		return;
	close(fixture->fd);
	scratch_close(&fixture->scratch);
	skip();
}

static void close_fixture(struct fixture *fixture)
{
	engine_file_remove(fixture->loop.engine, fixture->file);
	fixture->loop.engine = engine_free(fixture->loop.engine);
	close(fixture->fd);
	scratch_close(&fixture->scratch);
}

static int transfer(struct fixture *fixture, enum tier_direction direction, void *buffer, uint64_t offset,
		    size_t length)
{
	struct test_io test;

	test_io_init(&test, direction, buffer, offset, length);
	assert_int_equal(engine_submit(fixture->loop.engine, fixture->file, &test.io), 0);
	assert_int_equal(test.done_count, 0);
	return test_io_wait(&fixture->loop, &test);
}

static void submit_all(struct fixture *fixture, struct test_io *tests, unsigned char *pages,
		       enum tier_direction direction)
{
	for (unsigned i = 0; i < CHUNKS; i++) {
		test_io_init(&tests[i], direction, pages + i * CHUNK, (CHUNKS - 1 - i) * CHUNK, CHUNK);
		assert_int_equal(engine_submit(fixture->loop.engine, fixture->file, &tests[i].io), 0);
	}
	for (unsigned i = 0; i < CHUNKS; i++)
		assert_int_equal(test_io_wait(&fixture->loop, &tests[i]), 0);
	for (unsigned i = 0; i < CHUNKS; i++)
		assert_int_equal(tests[i].done_count, 1);
}

static void bytes_come_back(unsigned queue_depth, bool is_pinned)
{
	struct test_io tests[CHUNKS];
	struct memory out = MEMORY_INIT, in = MEMORY_INIT;
	struct fixture fixture;

	open_fixture(&fixture, queue_depth);
	assert_int_equal(memory_new_private(CHUNKS * CHUNK, &out), 0);
	assert_int_equal(memory_new_private(CHUNKS * CHUNK, &in), 0);
	pages_fill((unsigned char *)out.base, out.length, queue_depth);
	if (is_pinned) {
		assert_int_equal(engine_buffer_add(fixture.loop.engine, out.base, out.length), 0);
		assert_int_equal(engine_buffer_add(fixture.loop.engine, in.base, in.length / 2 + 4096), 0);
	}
	submit_all(&fixture, tests, (unsigned char *)out.base, TIER_WRITE);
	submit_all(&fixture, tests, (unsigned char *)in.base, TIER_READ);
	assert_memory_equal(in.base, out.base, out.length);
	if (is_pinned) {
		engine_buffer_remove(fixture.loop.engine, out.base, out.length);
		engine_buffer_remove(fixture.loop.engine, in.base, in.length);
		submit_all(&fixture, tests, (unsigned char *)in.base, TIER_READ);
		assert_memory_equal(in.base, out.base, out.length);
	}
	close_fixture(&fixture);
	memory_free(&out);
	memory_free(&in);
}

static void bytes_come_back_at_any_queue_depth(void **state)
{
	bytes_come_back(1, false);
	bytes_come_back(3, false);
	bytes_come_back(256, false);
}

static void bytes_come_back_through_pinned_and_half_pinned_buffers(void **state)
{
	bytes_come_back(4, true);
	bytes_come_back(64, true);
}

static void a_demand_read_overtakes_all_that_waits(void **state)
{
	static const enum tier_priority given[] = { TIER_WRITE_BACK, TIER_WRITE_BACK, TIER_PREFETCH,
						    TIER_PREFETCH,   TIER_DEMAND,     TIER_WRITE_BACK,
						    TIER_DEMAND };
	/* The first is on its way when the others come. */
	static const unsigned expected[] = { 0, 4, 6, 2, 3, 1, 5 };
	struct test_io tests[ARRAY_LENGTH(given)];
	unsigned char *pages = pages_new(4096);
	struct fixture fixture;

	open_fixture(&fixture, 1);
	assert_int_equal(transfer(&fixture, TIER_WRITE, pages, 0, 4096), 0);
	for (unsigned i = 0; i < ARRAY_LENGTH(given); i++) {
		test_io_init(&tests[i], TIER_READ, pages, 0, 4096);
		tests[i].io.priority = given[i];
		assert_int_equal(engine_submit(fixture.loop.engine, fixture.file, &tests[i].io), 0);
	}
	for (unsigned i = 0; i < ARRAY_LENGTH(given); i++)
		assert_int_equal(test_io_wait(&fixture.loop, &tests[i]), 0);
	for (unsigned i = 1; i < ARRAY_LENGTH(given); i++)
		assert_true(tests[expected[i - 1]].order < tests[expected[i]].order);
	close_fixture(&fixture);
	free(pages);
}

static void a_transfer_of_many_pieces_comes_back_whole(void **state)
{
	size_t length = 5 * SCHEDULE_PIECE_BYTES / 2;
	unsigned char *out = pages_new(length), *in = pages_new(length);
	struct fixture fixture;

	open_fixture(&fixture, 2);
	pages_fill(out, length, 5);
	assert_int_equal(transfer(&fixture, TIER_WRITE, out, 4096, length), 0);
	assert_int_equal(transfer(&fixture, TIER_READ, in, 4096, length), 0);
	assert_memory_equal(in, out, length);
	close_fixture(&fixture);
	free(out);
	free(in);
}

/* A pipe stands for a device that takes its time. */
static void a_device_that_does_not_answer_holds_up_no_other(void **state)
{
	struct engine_config config = { .queue_depth = 1, .devices = 2 };
	unsigned char *pages = pages_new(2 * 4096);
	struct test_io slow[2];
	struct fixture fixture;
	int ends[2], file;

	open_fixture(&fixture, 1);
	engine_file_remove(fixture.loop.engine, fixture.file);
	fixture.loop.engine = engine_free(fixture.loop.engine);
	assert_int_equal(engine_new(&config, &fixture.loop.engine), 0);
	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	file = engine_file_add(fixture.loop.engine, ends[0], 0, &(struct tier_share){ 0 });
	fixture.file = engine_file_add(fixture.loop.engine, fixture.fd, 1, &(struct tier_share){ 0 });
	for (unsigned i = 0; i < 2; i++) {
		test_io_init(&slow[i], TIER_READ, pages, 0, 4096);
		assert_int_equal(engine_submit(fixture.loop.engine, file, &slow[i].io), 0);
	}
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(transfer(&fixture, TIER_WRITE, pages + 4096, i * 4096, 4096), 0);
	assert_int_equal(slow[0].done_count + slow[1].done_count, 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(write(ends[1], pages + 4096, 4096), 4096);
		assert_int_equal(test_io_wait(&fixture.loop, &slow[i]), 0);
	}
	engine_file_remove(fixture.loop.engine, file);
	close(ends[0]);
	close(ends[1]);
	close_fixture(&fixture);
	free(pages);
}

static uint64_t busy_ns_between(struct engine *engine)
{
	uint64_t busy_ns = engine_busy_ns(engine, 0), began_ns = clock_now_ns(), ended_ns = clock_now_ns();

	busy_ns = engine_busy_ns(engine, 0) - busy_ns;
	assert_true(busy_ns == 0 || busy_ns >= ended_ns - began_ns);
	return busy_ns;
}

/* Nothing is reaped until somebody waits for it. */
static void a_device_is_busy_until_what_it_has_to_do_is_reaped(void **state)
{
	unsigned char *pages = pages_new(4 * 4096);
	struct test_io tests[4];
	struct fixture fixture;

	open_fixture(&fixture, 2);
	assert_int_equal(engine_busy_ns(fixture.loop.engine, 0), 0);
	for (unsigned i = 0; i < 4; i++) {
		test_io_init(&tests[i], TIER_WRITE, pages + i * 4096, i * 4096, 4096);
		/* Nobody waits for the first one. */
		tests[i].io.priority = i == 0 ? TIER_IDLE : TIER_WRITE_BACK;
		assert_int_equal(engine_submit(fixture.loop.engine, fixture.file, &tests[i].io), 0);
		assert_int_equal(busy_ns_between(fixture.loop.engine) > 0, i > 0);
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(test_io_wait(&fixture.loop, &tests[i]), 0);
	assert_int_equal(busy_ns_between(fixture.loop.engine), 0);
	assert_true(engine_busy_ns(fixture.loop.engine, 0) > 0);
	close_fixture(&fixture);
	free(pages);
}

static void a_read_beyond_the_end_is_an_error(void **state)
{
	unsigned char *pages = pages_new(16384);
	struct fixture fixture;

	open_fixture(&fixture, 4);
	assert_int_equal(ftruncate(fixture.fd, 8192), 0);
	assert_int_equal(transfer(&fixture, TIER_READ, pages, 0, 8192), 0);
	assert_int_equal(transfer(&fixture, TIER_READ, pages, 8192, 4096), -EIO);
	assert_int_equal(transfer(&fixture, TIER_READ, pages, 4096, 12288), -EIO);
	assert_int_equal(ftruncate(fixture.fd, 8192 + 100), 0);
	assert_int_equal(transfer(&fixture, TIER_READ, pages, 4096, 12288), -EIO);
	close_fixture(&fixture);
	free(pages);
}

/* The limit cuts the first write short; only one that is resumed meets the error. */
static void a_write_that_is_cut_short_is_resumed(void **state)
{
	unsigned char *out = pages_new(16384), *in = pages_new(16384);
	struct rlimit previous, limit;
	struct fixture fixture;
	int r;

	open_fixture(&fixture, 4);
	pages_fill(out, 16384, 3);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &previous), 0);
	limit = (struct rlimit){ 8192, previous.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	r = transfer(&fixture, TIER_WRITE, out, 0, 16384);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &previous), 0);
	assert_int_equal(r, -EFBIG);
	assert_int_equal(transfer(&fixture, TIER_READ, in, 0, 8192), 0);
	assert_memory_equal(in, out, 8192);
	close_fixture(&fixture);
	free(out);
	free(in);
}

struct chain {
	struct tier_io io;
	struct fixture *fixture;
	unsigned left;
};

static void chain_done(struct tier_io *io, int status)
{
	struct chain *chain = container_of(io, struct chain, io);

	assert_int_equal(status, 0);
	if (--chain->left == 0)
		return;
	io->offset += 4096;
	assert_int_equal(engine_submit(chain->fixture->loop.engine, chain->fixture->file, io), 0);
}

static void done_may_submit(void **state)
{
	unsigned char *pages = pages_new(4096);
	struct chain chains[8];
	struct fixture fixture;

	open_fixture(&fixture, 4);
	for (unsigned i = 0; i < ARRAY_LENGTH(chains); i++) {
		chains[i] = (struct chain){ .fixture = &fixture, .left = 20 };
		chains[i].io = (struct tier_io){
			.direction = TIER_WRITE, .buffer = pages, .length = 4096, .done = chain_done
		};
		assert_int_equal(engine_submit(fixture.loop.engine, fixture.file, &chains[i].io), 0);
	}
	for (unsigned i = 0; i < ARRAY_LENGTH(chains); i++)
		while (chains[i].left > 0)
			io_loop_turn(&fixture.loop);
	close_fixture(&fixture);
	free(pages);
}

static void every_file_slot_can_be_used_again(void **state)
{
	struct fixture fixture;
	int added = 0, file;

	open_fixture(&fixture, 1);
	while ((file = engine_file_add(fixture.loop.engine, fixture.fd, 0, &(struct tier_share){ 0 })) >= 0)
		added++;
	assert_int_equal(file, -ENFILE);
	assert_true(added > 32);
	engine_file_remove(fixture.loop.engine, 7);
	assert_int_equal(engine_file_add(fixture.loop.engine, fixture.fd, 0, &(struct tier_share){ 0 }), 7);
	close_fixture(&fixture);
}

static void *pin_and_unpin(void *argument)
{
	struct engine *engine = argument;
	struct memory memory = MEMORY_INIT;
	int r = memory_new_private(1 << 20, &memory);

	for (unsigned i = 0; i < 50 && r == 0; i++) {
		r = engine_buffer_add(engine, memory.base, memory.length);
		if (r == 0)
			engine_buffer_remove(engine, memory.base, memory.length);
	}
	memory_free(&memory);
	return (void *)(intptr_t)r;
}

static void buffers_are_pinned_from_another_thread_meanwhile(void **state)
{
	unsigned char *pages = pages_new(CHUNKS * CHUNK);
	struct test_io tests[CHUNKS];
	struct fixture fixture;
	pthread_t thread;
	void *result;

	open_fixture(&fixture, 16);
	assert_int_equal(pthread_create(&thread, NULL, pin_and_unpin, fixture.loop.engine), 0);
	for (unsigned i = 0; i < 10; i++)
		submit_all(&fixture, tests, pages, TIER_WRITE);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal((intptr_t)result, 0);
	close_fixture(&fixture);
	free(pages);
}

#define PAGES 5121 /* more than one call allocates */
#define PAGE ((size_t)4096)

static unsigned count_pages(const void *base)
{
	static unsigned char is_there[PAGES];
	unsigned count = 0;

	assert_int_equal(mincore((void *)base, PAGES * PAGE, is_there), 0);
	for (unsigned i = 0; i < PAGES; i++)
		count += is_there[i] & 1;
	return count;
}

static int add_what_is_there(struct engine *engine, void *base, size_t length)
{
	assert_int_equal(length, PAGES * PAGE);
	return (int)count_pages(base);
}

static void pages_are_there_before_a_backend_pins_them(void **state)
{
	struct memory memory = MEMORY_INIT;
	const struct engine_ops *ops;
	struct engine_ops counting;
	struct fixture fixture;

	open_fixture(&fixture, 1);
	ops = fixture.loop.engine->ops;
	counting = *ops;
	counting.buffer_add = add_what_is_there;
	assert_int_equal(memory_new_private(PAGES * PAGE, &memory), 0);
	memory.base[7 * PAGE] = 1;
	assert_true(count_pages(memory.base) < PAGES);
	fixture.loop.engine->ops = &counting;
	assert_int_equal(engine_buffer_add(fixture.loop.engine, memory.base, memory.length), PAGES);
	fixture.loop.engine->ops = ops;
	assert_int_equal(memory.base[7 * PAGE], 1);
	memory_free(&memory);
	close_fixture(&fixture);
}

static void a_flush_among_transfers_is_done_once(void **state)
{
	unsigned char *pages = pages_new(CHUNKS * CHUNK);
	struct test_io flushes[4], tests[CHUNKS];
	struct fixture fixture;

	open_fixture(&fixture, 2);
	for (unsigned i = 0; i < CHUNKS; i++) {
		test_io_init(&tests[i], TIER_WRITE, pages + i * CHUNK, i * CHUNK, CHUNK);
		assert_int_equal(engine_submit(fixture.loop.engine, fixture.file, &tests[i].io), 0);
		if (i >= ARRAY_LENGTH(flushes))
			continue;
		test_io_init(&flushes[i], TIER_FLUSH, NULL, 0, 0);
		assert_int_equal(engine_submit(fixture.loop.engine, fixture.file, &flushes[i].io), 0);
	}
	for (unsigned i = 0; i < CHUNKS; i++)
		assert_int_equal(test_io_wait(&fixture.loop, &tests[i]), 0);
	for (unsigned i = 0; i < ARRAY_LENGTH(flushes); i++) {
		assert_int_equal(test_io_wait(&fixture.loop, &flushes[i]), 0);
		assert_int_equal(flushes[i].done_count, 1);
	}
	close_fixture(&fixture);
	free(pages);
}

static void a_queue_depth_out_of_range_is_refused(void **state)
{
	struct engine_config config = { .queue_depth = 0, .is_plain = is_plain };
	struct engine *engine = NULL;

	assert_int_equal(engine_new(&config, &engine), -EINVAL);
	config.queue_depth = 4097;
	assert_int_equal(engine_new(&config, &engine), -EINVAL);
	config = (struct engine_config){ .queue_depth = 1, .devices = 17, .is_plain = is_plain };
	assert_int_equal(engine_new(&config, &engine), -EINVAL);
	assert_null(engine);
}

static void the_engine_says_what_it_is(void **state)
{
	struct fixture fixture;

	open_fixture(&fixture, 1);
	assert_string_equal(engine_name(fixture.loop.engine), is_plain ? "plain" : "io_uring");
	if (is_plain)
		assert_string_equal(engine_why(fixture.loop.engine), "io_uring is switched off");
	else
		assert_null(engine_why(fixture.loop.engine));
	close_fixture(&fixture);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bytes_come_back_at_any_queue_depth),
		cmocka_unit_test(bytes_come_back_through_pinned_and_half_pinned_buffers),
		cmocka_unit_test(a_demand_read_overtakes_all_that_waits),
		cmocka_unit_test(a_transfer_of_many_pieces_comes_back_whole),
		cmocka_unit_test(a_device_is_busy_until_what_it_has_to_do_is_reaped),
		cmocka_unit_test(a_read_beyond_the_end_is_an_error),
		cmocka_unit_test(a_write_that_is_cut_short_is_resumed),
		cmocka_unit_test(done_may_submit),
		cmocka_unit_test(every_file_slot_can_be_used_again),
		cmocka_unit_test(buffers_are_pinned_from_another_thread_meanwhile),
		cmocka_unit_test(pages_are_there_before_a_backend_pins_them),
		cmocka_unit_test(a_flush_among_transfers_is_done_once),
		cmocka_unit_test(a_queue_depth_out_of_range_is_refused),
		cmocka_unit_test(the_engine_says_what_it_is),
	};
	/* Its device is a pipe, which pread does not take. */
	const struct CMUnitTest ring_tests[] = {
		cmocka_unit_test(a_device_that_does_not_answer_holds_up_no_other),
	};
	int failed = cmocka_run_group_tests_name("io_uring", tests, NULL, NULL);

	failed += cmocka_run_group_tests_name("io_uring with a pipe", ring_tests, NULL, NULL);
	is_plain = true;
	return failed + cmocka_run_group_tests_name("plain", tests, NULL, NULL);
}
