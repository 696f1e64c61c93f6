/* A rank's GPU, in the library, where each allocation fails in turn. */
#include <stdlib.h>
#include <unistd.h>

#include "client/library/gpu/gpu.h"
#include "tests/fault/alloc_fault.h"
#include "tests/unit/test.h"

#define BYTES ((uint64_t)2 << 20)

static struct driver driver;
static struct driver_stream *stream;
static int memory_fd;

static int make_memory(void **state)
{
	const struct driver_memory_kind kind = { .type = DRIVER_PINNED,
						 .handles = DRIVER_DESCRIPTOR,
						 .location = { DRIVER_ON_GPU, 0 } };
	struct dynamic_library library = { .is_found = false };
	struct driver_context *context;
	driver_allocation allocation;

	assert_true(driver_open(&driver, &library));
	assert_int_equal(driver.context_retain(&context, 0), DRIVER_DONE);
	assert_int_equal(driver.context_enter(context), DRIVER_DONE);
	assert_int_equal(driver.stream_create(&stream, DRIVER_NO_STREAM_0), DRIVER_DONE);
	assert_int_equal(driver.memory_create(&allocation, BYTES, &kind, 0), DRIVER_DONE);
	assert_int_equal(driver.memory_export(&memory_fd, allocation, DRIVER_DESCRIPTOR, 0), DRIVER_DONE);
	return 0;
}

static int use(struct gpu *gpu)
{
	struct gpu_mapping *mapping = NULL;
	uint64_t number = 0;
	int r = gpu_mapping_new(gpu, memory_fd, BYTES, NULL, 0, &mapping);

	if (r == 0)
		r = gpu_note(gpu, stream);
	if (r == 0)
		r = gpu_join(gpu, &number);
	gpu_mapping_free(mapping, false);
	return r;
}

static int open_and_use(void)
{
	struct gpu *gpu = NULL;
	int r = gpu_new(0, &gpu);

	if (r == 0)
		r = use(gpu);
	gpu_free(gpu, false);
	return r;
}

static void each_allocation_may_fail(void **state)
{
	/* The GPU, the mapping and its events, the stream. */
	assert_int_equal(alloc_fault_each(open_and_use), 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(each_allocation_may_fail, make_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
