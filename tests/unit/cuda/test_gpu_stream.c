/* A stream of a GPU beside its engine: what is put there is done in order, marks say how far it is, and calls
 * that fail are told. */
#include <errno.h>
#include <sched.h>
#include <string.h>

#include "offload/cuda/gpu_stream.h"
#include "tests/unit/cuda/gpu_support.h"

#define BYTES 4096

static struct gpu_fixture fixture;
static struct gpu_memory memory;

static int set_up(void **state)
{
	gpu_fixture_open(&fixture);
	assert_int_equal(gpu_memory_create_now(fixture.engines[0], &memory, 4 * BYTES), 0);
	return 0;
}

static int tear_down(void **state)
{
	assert_int_equal(gpu_memory_destroy_now(fixture.engines[0], &memory), 0);
	gpu_fixture_close(&fixture);
	return 0;
}

static void await(struct gpu_stream *stream, uint64_t mark)
{
	int r;

	while ((r = gpu_stream_is_past(stream, mark)) == 0)
		sched_yield();
	assert_int_equal(r, 1);
}

/* More marks than there are events, so that each event is several marks in turn. */
static void copies_are_done_in_order_and_marks_say_when(void **state)
{
	unsigned char *bytes = (unsigned char *)(uintptr_t)memory.address;
	struct gpu_stream *stream;
	uint64_t mark = 0;

	memset(bytes, 7, BYTES);
	assert_int_equal(gpu_stream_new(fixture.engines[0], &stream), 0);
	assert_non_null(gpu_stream_handle(stream));
	for (unsigned i = 0; i < 2 * GPU_STREAM_MARKS; i++) {
		size_t from = i % 3 * BYTES, to = (i + 1) % 3 * BYTES;

		assert_int_equal(gpu_stream_copy(stream, memory.address + to, memory.address + from, BYTES),
				 0);
		assert_int_equal(gpu_stream_mark(stream, &mark), 0);
		assert_int_equal(mark, i);
	}
	await(stream, mark);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(bytes[i * BYTES + BYTES - 1], 7);
	assert_null(gpu_stream_free(stream));
}

static void a_stream_that_cannot_be_made_is_not_there(void **state)
{
	static const char *const failures[] = { "cuCtxSetCurrent=201", "cuStreamCreate=2",
						"cuEventCreate#3=2" };
	static const int expected[] = { -EINVAL, -ENOMEM, -ENOMEM };

	for (size_t i = 0; i < ARRAY_LENGTH(failures); i++) {
		struct gpu_stream *stream = NULL;

		standin_tell("STANDIN_FAILURES", failures[i]);
		assert_int_equal(gpu_stream_new(fixture.engines[0], &stream), expected[i]);
		assert_null(stream);
		standin_tell("STANDIN_FAILURES", NULL);
	}
}

static void calls_that_fail_are_told(void **state)
{
	struct gpu_stream *stream;
	uint64_t mark = 99;

	assert_int_equal(gpu_stream_new(fixture.engines[0], &stream), 0);
	standin_tell("STANDIN_FAILURES", "cuMemcpyAsync=1,cuEventRecord=2,cuEventQuery=999");
	assert_int_equal(gpu_stream_copy(stream, memory.address, memory.address + BYTES, BYTES), -EINVAL);
	assert_int_equal(gpu_stream_mark(stream, &mark), -ENOMEM);
	assert_int_equal(mark, 99);
	standin_tell("STANDIN_FAILURES", "cuEventQuery=999");
	assert_int_equal(gpu_stream_mark(stream, &mark), 0);
	assert_int_equal(gpu_stream_is_past(stream, mark), -EIO);
	standin_tell("STANDIN_FAILURES", "cuCtxSetCurrent=201");
	assert_int_equal(gpu_stream_copy(stream, memory.address, memory.address + BYTES, BYTES), -EINVAL);
	assert_int_equal(gpu_stream_mark(stream, &mark), -EINVAL);
	assert_int_equal(gpu_stream_is_past(stream, mark), -EINVAL);
	standin_tell("STANDIN_FAILURES", NULL);
	await(stream, mark);
	assert_null(gpu_stream_free(stream));
	assert_null(gpu_stream_free(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(copies_are_done_in_order_and_marks_say_when, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_stream_that_cannot_be_made_is_not_there, set_up, tear_down),
		cmocka_unit_test_setup_teardown(calls_that_fail_are_told, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
