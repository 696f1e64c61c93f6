#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "offload/device/host.h"
#include "tests/unit/io_support.h"

static int refuse(struct tier *tier, struct tier_io *io)
{
	return -EBUSY;
}

static void free_nothing(struct tier *tier)
{
}

static const struct tier_ops refusing_ops = {
	.name = "refusing",
	.block_size = 4096,
	.submit = refuse,
	.free = free_nothing,
};

static void a_transfer_outside_the_capacity_is_refused(void **state)
{
	char memory[64];
	struct tier *tier;
	struct test_io test;

	assert_int_equal(host_tier_new(memory, sizeof(memory), &tier), 0);
	test_io_init(&test, TIER_READ, memory, 60, 5);
	assert_int_equal(tier_submit(tier, &test.io), -ERANGE);
	test_io_init(&test, TIER_READ, memory, UINT64_MAX, 1);
	assert_int_equal(tier_submit(tier, &test.io), -ERANGE);
	host_tier_reap(tier);
	assert_int_equal(test.done_count, 0);
	assert_int_equal(tier->submitted[TIER_READ].requests, 0);
	tier = tier_free(tier);
}

static void only_accepted_transfers_are_counted(void **state)
{
	char memory[64], buffer[64];
	struct tier *tier;
	struct tier refusing = { .ops = &refusing_ops, .capacity = 8192 };
	struct test_io test;
	unsigned char *pages = pages_new(4096);

	test_io_init(&test, TIER_WRITE, pages, 0, 4096);
	assert_int_equal(tier_submit(&refusing, &test.io), -EBUSY);
	assert_int_equal(refusing.submitted[TIER_WRITE].requests, 0);

	assert_int_equal(host_tier_new(memory, sizeof(memory), &tier), 0);
	test_io_init(&test, TIER_WRITE, buffer, 0, 64);
	memset(buffer, 1, sizeof(buffer));
	assert_int_equal(tier_submit(tier, &test.io), 0);
	host_tier_reap(tier);
	assert_int_equal(test.done_count, 1);
	assert_int_equal(tier->submitted[TIER_WRITE].requests, 1);
	assert_int_equal(tier->submitted[TIER_WRITE].bytes, 64);
	assert_int_equal(tier->submitted[TIER_READ].bytes, 0);
	tier = tier_free(tier);
	free(pages);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_transfer_outside_the_capacity_is_refused),
		cmocka_unit_test(only_accepted_transfers_are_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
