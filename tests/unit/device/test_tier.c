/* The front of tiers, and the host tier behind it. */
#include <errno.h>
#include <string.h>

#include "offload/device/host.h"
#include "tests/unit/io_support.h"
#include "tests/unit/test.h"

static int refuse(struct tier *tier, struct tier_io *io)
{
	return -EBUSY;
}

static void free_nothing(struct tier *tier)
{
}

static const struct tier_ops refusing_ops = {
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

static void bytes_come_back_and_nothing_runs_before_the_reap(void **state)
{
	char memory[4096] = { 0 }, out[100], in[100];
	struct test_io write, read;
	struct tier *tier;

	pages_fill((unsigned char *)out, sizeof(out), 1);
	assert_int_equal(host_tier_new(memory, sizeof(memory), &tier), 0);
	test_io_init(&write, TIER_WRITE, out, 1000, sizeof(out));
	test_io_init(&read, TIER_READ, in, 1000, sizeof(in));
	assert_int_equal(tier_submit(tier, &write.io), 0);
	assert_int_equal(tier_submit(tier, &read.io), 0);
	assert_int_equal(write.done_count + read.done_count, 0);
	host_tier_reap(tier);
	assert_int_equal(write.done_count, 1);
	assert_int_equal(read.done_count, 1);
	assert_true(write.order < read.order);
	assert_memory_equal(in, out, sizeof(out));
	assert_memory_equal(memory + 1000, out, sizeof(out));
	tier = tier_free(tier);
}

struct chain {
	struct tier_io io;
	struct tier *tier;
	unsigned left;
};

static void chain_done(struct tier_io *io, int status)
{
	struct chain *chain = container_of(io, struct chain, io);

	assert_int_equal(status, 0);
	if (--chain->left > 0)
		assert_int_equal(tier_submit(chain->tier, io), 0);
}

static void what_done_submits_waits_for_the_next_reap(void **state)
{
	char memory[16], buffer[16];
	struct chain chain = { .left = 3 };

	assert_int_equal(host_tier_new(memory, sizeof(memory), &chain.tier), 0);
	memset(buffer, 0, sizeof(buffer));
	chain.io = (struct tier_io){
		.direction = TIER_WRITE, .buffer = buffer, .length = 16, .done = chain_done
	};
	assert_int_equal(tier_submit(chain.tier, &chain.io), 0);
	for (unsigned left = 3; left > 0; left--) {
		assert_int_equal(chain.left, left);
		host_tier_reap(chain.tier);
	}
	assert_int_equal(chain.left, 0);
	chain.tier = tier_free(chain.tier);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_transfer_outside_the_capacity_is_refused),
		cmocka_unit_test(only_accepted_transfers_are_counted),
		cmocka_unit_test(bytes_come_back_and_nothing_runs_before_the_reap),
		cmocka_unit_test(what_done_submits_waits_for_the_next_reap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
