/* Everything that the kernel can answer the engine, in turn. The wrappers below stand between the engine and
 * liburing, pread, pwrite and fdatasync. */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>

#include "offload/device/memory.h"
#include "offload/device/schedule.h"
#include "tests/unit/io_support.h"
#include "tests/unit/test.h"

#define CHUNK ((size_t)16384)
#define CHUNKS 6

enum call {
	CALL_NONE,
	CALL_SUBMIT,
	CALL_COMPLETE,
	CALL_QUEUE,
	CALL_EVENTFD,
	CALL_FILES,
	CALL_BUFFERS,
	CALL_FILE,
	CALL_PIN
};

static struct {
	enum call call;
	atomic_uint countdown; /* the countdown-th such call … */
	bool is_lasting;       /* and all after it */
	int result;	       /* … returns this */
	unsigned cut_to;       /* every other transfer that is longer ends there; 0: none */
	atomic_uint transfers;
	atomic_bool has_tripped;
	unsigned fixed, unfixed; /* transfers that were shown to the kernel, by buffer */
	unsigned flushes;	 /* that were shown to it */
} fault;

static bool is_plain;

static bool is_due(enum call call)
{
	unsigned left = fault.countdown;

	if (fault.call != call || left == 0)
		return false;
	while (left > 1 && !atomic_compare_exchange_weak(&fault.countdown, &left, left - 1))
		;
	if (left != 1)
		return false;
	if (!fault.is_lasting && !atomic_compare_exchange_strong(&fault.countdown, &left, 0))
		return false;
	fault.has_tripped = true;
	return true;
}

int __real_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int __wrap_io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
	return is_due(CALL_QUEUE) ? fault.result : __real_io_uring_queue_init(entries, ring, flags);
}

int __real_io_uring_register_eventfd(struct io_uring *ring, int fd);
int __wrap_io_uring_register_eventfd(struct io_uring *ring, int fd);
int __wrap_io_uring_register_eventfd(struct io_uring *ring, int fd)
{
	return is_due(CALL_EVENTFD) ? fault.result : __real_io_uring_register_eventfd(ring, fd);
}

int __real_io_uring_register_files_sparse(struct io_uring *ring, unsigned count);
int __wrap_io_uring_register_files_sparse(struct io_uring *ring, unsigned count);
int __wrap_io_uring_register_files_sparse(struct io_uring *ring, unsigned count)
{
	return is_due(CALL_FILES) ? fault.result : __real_io_uring_register_files_sparse(ring, count);
}

int __real_io_uring_register_buffers_sparse(struct io_uring *ring, unsigned count);
int __wrap_io_uring_register_buffers_sparse(struct io_uring *ring, unsigned count);
int __wrap_io_uring_register_buffers_sparse(struct io_uring *ring, unsigned count)
{
	return is_due(CALL_BUFFERS) ? fault.result : __real_io_uring_register_buffers_sparse(ring, count);
}

int __real_io_uring_register_files_update(struct io_uring *ring, unsigned offset, const int *files,
					  unsigned count);
int __wrap_io_uring_register_files_update(struct io_uring *ring, unsigned offset, const int *files,
					  unsigned count);
int __wrap_io_uring_register_files_update(struct io_uring *ring, unsigned offset, const int *files,
					  unsigned count)
{
	return is_due(CALL_FILE) ? fault.result
				 : __real_io_uring_register_files_update(ring, offset, files, count);
}

int __real_io_uring_register_buffers_update_tag(struct io_uring *ring, unsigned offset,
						const struct iovec *vectors, const __u64 *tags,
						unsigned count);
int __wrap_io_uring_register_buffers_update_tag(struct io_uring *ring, unsigned offset,
						const struct iovec *vectors, const __u64 *tags,
						unsigned count);
int __wrap_io_uring_register_buffers_update_tag(struct io_uring *ring, unsigned offset,
						const struct iovec *vectors, const __u64 *tags,
						unsigned count)
{
	return is_due(CALL_PIN)
		       ? fault.result
		       : __real_io_uring_register_buffers_update_tag(ring, offset, vectors, tags, count);
}

static unsigned cut(unsigned length)
{
	bool is_cut = fault.cut_to > 0 && length > fault.cut_to && fault.transfers++ % 2 == 0;

	return is_cut ? fault.cut_to : length;
}

static void look_at(struct io_uring *ring)
{
	for (unsigned i = *ring->sq.khead; i != ring->sq.sqe_tail; i++) {
		struct io_uring_sqe *entry = &ring->sq.sqes[i & ring->sq.ring_mask];
		bool is_fixed =
			entry->opcode == IORING_OP_READ_FIXED || entry->opcode == IORING_OP_WRITE_FIXED;

		if (entry->opcode == IORING_OP_FSYNC) {
			assert_int_equal(entry->fsync_flags, IORING_FSYNC_DATASYNC);
			fault.flushes++;
			continue;
		}
		fault.fixed += is_fixed;
		fault.unfixed += !is_fixed;
		entry->len = cut(entry->len);
	}
}

int __real_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring);
int __wrap_io_uring_submit(struct io_uring *ring)
{
	if (is_due(CALL_SUBMIT))
		return fault.result;
	look_at(ring);
	return __real_io_uring_submit(ring);
}

unsigned __real_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned count);
unsigned __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned count);
unsigned __wrap_io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **cqes, unsigned count)
{
	unsigned found = __real_io_uring_peek_batch_cqe(ring, cqes, count);

	for (unsigned i = 0; i < found; i++)
		if (is_due(CALL_COMPLETE))
			cqes[i]->res = fault.result;
	return found;
}

static ssize_t fail_plain(void)
{
	if (fault.result >= 0)
		return fault.result;
	errno = -fault.result;
	return -1;
}

ssize_t __real_pread64(int fd, void *buffer, size_t length, off_t offset);
ssize_t __wrap_pread64(int fd, void *buffer, size_t length, off_t offset);
ssize_t __wrap_pread64(int fd, void *buffer, size_t length, off_t offset)
{
	if (is_due(CALL_COMPLETE))
		return fail_plain();
	return __real_pread64(fd, buffer, cut((unsigned)length), offset);
}

ssize_t __real_pwrite64(int fd, const void *buffer, size_t length, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *buffer, size_t length, off_t offset);
ssize_t __wrap_pwrite64(int fd, const void *buffer, size_t length, off_t offset)
{
	if (is_due(CALL_COMPLETE))
		return fail_plain();
	return __real_pwrite64(fd, buffer, cut((unsigned)length), offset);
}

int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);
int __wrap_fdatasync(int fd)
{
	fault.flushes++;
	return is_due(CALL_COMPLETE) ? (int)fail_plain() : __real_fdatasync(fd);
}

struct fixture {
	struct scratch scratch;
	struct io_loop loop;
	int fd, file;
	struct memory out, in;
};

static void arm(enum call call, unsigned countdown, int result, bool is_lasting)
{
	fault.call = call;
	fault.countdown = countdown;
	fault.result = result;
	fault.is_lasting = is_lasting;
	fault.cut_to = 0;
	fault.has_tripped = false;
	fault.fixed = fault.unfixed = fault.flushes = 0;
}

static void open_fixture(struct fixture *fixture)
{
	struct engine_config config = { .queue_depth = 4, .is_plain = is_plain };

	*fixture = (struct fixture){ .out = MEMORY_INIT, .in = MEMORY_INIT };
	scratch_open(&fixture->scratch);
	fixture->fd = openat(fixture->scratch.fd, "file", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fixture->fd >= 0);
	(void)fcntl(fixture->fd, F_SETFL, O_DIRECT);
	unlinkat(fixture->scratch.fd, "file", 0);
	/* So that what failed to be written can be read. */
	assert_int_equal(ftruncate(fixture->fd, CHUNKS * CHUNK), 0);
	assert_int_equal(engine_new(&config, &fixture->loop.engine), 0);
	fixture->file = engine_file_add(fixture->loop.engine, fixture->fd, 0, &(struct tier_share){ 0 });
	assert_true(fixture->file >= 0);
	assert_int_equal(memory_new_private(CHUNKS * CHUNK, &fixture->out), 0);
	assert_int_equal(memory_new_private(CHUNKS * CHUNK, &fixture->in), 0);
	pages_fill((unsigned char *)fixture->out.base, CHUNKS * CHUNK, 1);
}

static void close_fixture(struct fixture *fixture)
{
	arm(CALL_NONE, 0, 0, false);
	engine_file_remove(fixture->loop.engine, fixture->file);
	fixture->loop.engine = engine_free(fixture->loop.engine);
	close(fixture->fd);
	scratch_close(&fixture->scratch);
	memory_free(&fixture->out);
	memory_free(&fixture->in);
}

/* Submits all chunks and counts those that end with the status; the others must have gone well. */
static unsigned run(struct fixture *fixture, enum tier_direction direction, int status)
{
	char *base = direction == TIER_WRITE ? fixture->out.base : fixture->in.base;
	struct test_io tests[CHUNKS];
	unsigned count = 0;

	for (unsigned i = 0; i < CHUNKS; i++) {
		test_io_init(&tests[i], direction, base + i * CHUNK, i * CHUNK, CHUNK);
		assert_int_equal(engine_submit(fixture->loop.engine, fixture->file, &tests[i].io), 0);
	}
	for (unsigned i = 0; i < CHUNKS; i++) {
		int r = test_io_wait(&fixture->loop, &tests[i]);

		assert_int_equal(r, r == 0 ? 0 : status);
		count += r != 0;
	}
	for (unsigned i = 0; i < CHUNKS; i++)
		assert_int_equal(tests[i].done_count, 1);
	return count;
}

static void expect_round_trip(struct fixture *fixture)
{
	memset(fixture->in.base, 0, CHUNKS * CHUNK);
	assert_int_equal(run(fixture, TIER_WRITE, 0), 0);
	assert_int_equal(run(fixture, TIER_READ, 0), 0);
	assert_memory_equal(fixture->in.base, fixture->out.base, CHUNKS * CHUNK);
}

/* The engine goes on afterwards. */
static void end(struct fixture *fixture)
{
	arm(CALL_NONE, 0, 0, false);
	expect_round_trip(fixture);
	close_fixture(fixture);
}

/* Fails the first, second, … call until there are no more. Each makes that many transfers fail, or, of
 * AT_LEAST_ONE, some. */
#define AT_LEAST_ONE UINT_MAX
static void fail_each(enum call call, int result, unsigned expected)
{
	bool has_tripped = true;

	for (unsigned nth = 1; has_tripped; nth++) {
		struct fixture fixture;
		unsigned failed;

		open_fixture(&fixture);
		arm(call, nth, result, false);
		failed = run(&fixture, TIER_WRITE, result < 0 ? result : -EIO);
		failed += run(&fixture, TIER_READ, result < 0 ? result : -EIO);
		has_tripped = fault.has_tripped;
		if (has_tripped && expected == AT_LEAST_ONE)
			assert_true(failed > 0);
		else
			assert_int_equal(failed, has_tripped ? expected : 0);
		assert_true(has_tripped || nth > 2);
		end(&fixture);
	}
}

static void each_completion_that_fails_fails_its_transfer_only(void **state)
{
	fail_each(CALL_COMPLETE, -EIO, 1);
	fail_each(CALL_COMPLETE, -ENOSPC, 1);
	fail_each(CALL_COMPLETE, 0, 1);
}

static void each_interrupted_transfer_is_tried_again(void **state)
{
	fail_each(CALL_COMPLETE, -EINTR, 0);
	fail_each(CALL_COMPLETE, -EAGAIN, 0);
}

static void what_is_interrupted_for_ever_fails_at_last(void **state)
{
	struct fixture fixture;

	open_fixture(&fixture);
	arm(CALL_COMPLETE, 1, -EAGAIN, true);
	assert_int_equal(run(&fixture, TIER_WRITE, -EAGAIN), CHUNKS);
	arm(CALL_COMPLETE, 1, 100, true);
	assert_int_equal(run(&fixture, TIER_READ, -EIO), CHUNKS);
	end(&fixture);
}

static void short_transfers_are_resumed(void **state)
{
	struct fixture fixture;

	open_fixture(&fixture);
	/* With O_DIRECT sectors would say where one can end. The rest begins at a page all the same. */
	assert_int_equal(fcntl(fixture.fd, F_SETFL, 0), 0);
	for (unsigned length = 512; length < CHUNK; length += 512) {
		pages_fill((unsigned char *)fixture.out.base, CHUNKS * CHUNK, length);
		fault.cut_to = length;
		fault.transfers = 0;
		expect_round_trip(&fixture);
		assert_true(fault.transfers >= 2 * CHUNKS);
	}
	close_fixture(&fixture);
	/* As a disk says it of sectors that it may have or not. */
	fail_each(CALL_COMPLETE, CHUNK - 512, 0);
}

static void each_submission_that_fails_fails_its_transfers_only(void **state)
{
	fail_each(CALL_SUBMIT, -EINVAL, AT_LEAST_ONE);
	fail_each(CALL_SUBMIT, -ENOMEM, AT_LEAST_ONE);
}

static void each_submission_that_is_refused_for_now_is_tried_again(void **state)
{
	fail_each(CALL_SUBMIT, -EAGAIN, 0);
	fail_each(CALL_SUBMIT, -EBUSY, 0);
	fail_each(CALL_SUBMIT, 0, 0);
}

static void a_ring_that_takes_nothing_fails_everything_at_last(void **state)
{
	struct fixture fixture;

	open_fixture(&fixture);
	arm(CALL_SUBMIT, 1, -EAGAIN, true);
	assert_int_equal(run(&fixture, TIER_WRITE, -EAGAIN), CHUNKS);
	end(&fixture);
}

static int flush(struct fixture *fixture)
{
	struct test_io test;
	int r;

	test_io_init(&test, TIER_FLUSH, NULL, 0, 0);
	assert_int_equal(engine_submit(fixture->loop.engine, fixture->file, &test.io), 0);
	r = test_io_wait(&fixture->loop, &test);
	assert_int_equal(test.done_count, 1);
	return r;
}

static void a_flush_that_fails_is_never_tried_again(void **state)
{
	static const int errors[] = { -EIO, -ENOSPC, -EINTR, -EAGAIN };
	struct fixture fixture;

	open_fixture(&fixture);
	for (unsigned i = 0; i < ARRAY_LENGTH(errors); i++) {
		arm(CALL_COMPLETE, 1, errors[i], false);
		assert_int_equal(flush(&fixture), errors[i]);
		assert_int_equal(fault.flushes, 1);
	}
	arm(CALL_NONE, 0, 0, false);
	assert_int_equal(flush(&fixture), 0);
	assert_int_equal(fault.flushes, 1);
	close_fixture(&fixture);
}

static void a_flush_that_the_kernel_did_not_take_is_shown_again(void **state)
{
	struct fixture fixture;

	open_fixture(&fixture);
	arm(CALL_SUBMIT, 1, -EAGAIN, false);
	assert_int_equal(flush(&fixture), 0);
	assert_true(fault.has_tripped);
	assert_int_equal(fault.flushes, 1);
	arm(CALL_SUBMIT, 1, -EIO, false);
	assert_int_equal(flush(&fixture), -EIO);
	assert_int_equal(fault.flushes, 0);
	close_fixture(&fixture);
}

static void where_io_uring_is_refused_the_plain_engine_says_why(void **state)
{
	static const struct {
		enum call call;
		int result;
		const char *why;
	} cases[] = {
		{ CALL_QUEUE, -EPERM, "io_uring_setup: Operation not permitted" },
		{ CALL_QUEUE, -ENOSYS, "io_uring_setup: Function not implemented" },
		{ CALL_EVENTFD, -ENOMEM,
		  "io_uring_register_eventfd: Cannot allocate memory (RLIMIT_MEMLOCK: raise it by ulimit "
		  "-l, or LimitMEMLOCK= of the service)" }
	};

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		struct fixture fixture;

		arm(cases[i].call, 1, cases[i].result, false);
		open_fixture(&fixture);
		assert_string_equal(engine_name(fixture.loop.engine), "plain");
		assert_string_equal(engine_why(fixture.loop.engine), cases[i].why);
		assert_int_equal(engine_buffer_add(fixture.loop.engine, fixture.in.base, CHUNK), 0);
		engine_buffer_remove(fixture.loop.engine, fixture.in.base, fixture.in.length);
		expect_round_trip(&fixture);
		close_fixture(&fixture);
	}
}

static void without_tables_of_files_or_buffers_it_still_works(void **state)
{
	static const enum call calls[] = { CALL_FILES, CALL_BUFFERS };

	for (size_t i = 0; i < ARRAY_LENGTH(calls); i++) {
		struct fixture fixture;

		arm(calls[i], 1, -EINVAL, false);
		open_fixture(&fixture);
		assert_true(fault.has_tripped);
		assert_null(engine_why(fixture.loop.engine));
		assert_int_equal(engine_buffer_add(fixture.loop.engine, fixture.in.base, fixture.in.length),
				 calls[i] == CALL_BUFFERS ? -EOPNOTSUPP : 0);
		expect_round_trip(&fixture);
		close_fixture(&fixture);
	}
}

static void a_file_that_cannot_be_registered_is_refused(void **state)
{
	struct fixture fixture;

	open_fixture(&fixture);
	arm(CALL_FILE, 1, -EBADF, false);
	assert_int_equal(engine_file_add(fixture.loop.engine, fixture.fd, 0, &(struct tier_share){ 0 }),
			 -EBADF);
	expect_round_trip(&fixture);
	close_fixture(&fixture);
}

static void a_region_that_cannot_be_pinned_still_works(void **state)
{
	struct engine *engine;
	struct fixture fixture;

	open_fixture(&fixture);
	engine = fixture.loop.engine;
	arm(CALL_PIN, 1, -ENOMEM, false);
	assert_int_equal(engine_buffer_add(engine, fixture.in.base, fixture.in.length), -ENOMEM);
	expect_round_trip(&fixture);
	assert_int_equal(fault.fixed, 0);
	assert_int_equal(engine_buffer_add(engine, fixture.in.base, fixture.in.length), 0);
	expect_round_trip(&fixture);
	assert_int_equal(fault.fixed, CHUNKS);
	engine_buffer_remove(engine, fixture.in.base, fixture.in.length);
	close_fixture(&fixture);
}

/* Else it says why. */
static bool has_ring(void)
{
	struct engine_config config = { .queue_depth = 1 };
	struct engine *engine;
	bool is_refused;

	if (engine_new(&config, &engine) < 0)
		return false;
	is_refused = engine_why(engine);
	if (is_refused)
		print_message("skipped: %s\n", engine_why(engine));
	engine_free(engine);
	return !is_refused;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_completion_that_fails_fails_its_transfer_only),
		cmocka_unit_test(each_interrupted_transfer_is_tried_again),
		cmocka_unit_test(what_is_interrupted_for_ever_fails_at_last),
		cmocka_unit_test(short_transfers_are_resumed),
		cmocka_unit_test(a_flush_that_fails_is_never_tried_again),
	};
	const struct CMUnitTest ring_tests[] = {
		cmocka_unit_test(each_submission_that_fails_fails_its_transfers_only),
		cmocka_unit_test(each_submission_that_is_refused_for_now_is_tried_again),
		cmocka_unit_test(a_ring_that_takes_nothing_fails_everything_at_last),
		cmocka_unit_test(a_flush_that_the_kernel_did_not_take_is_shown_again),
		cmocka_unit_test(where_io_uring_is_refused_the_plain_engine_says_why),
		cmocka_unit_test(without_tables_of_files_or_buffers_it_still_works),
		cmocka_unit_test(a_file_that_cannot_be_registered_is_refused),
		cmocka_unit_test(a_region_that_cannot_be_pinned_still_works),
	};
	int failed = cmocka_run_group_tests_name("io_uring", tests, NULL, NULL);

	if (has_ring())
		failed += cmocka_run_group_tests_name("io_uring only", ring_tests, NULL, NULL);
	is_plain = true;
	return failed + cmocka_run_group_tests_name("plain", tests, NULL, NULL);
}
