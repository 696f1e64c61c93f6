#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "offload/device/host.h"
#include "tests/unit/io_support.h"

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
		cmocka_unit_test(bytes_come_back_and_nothing_runs_before_the_reap),
		cmocka_unit_test(what_done_submits_waits_for_the_next_reap),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
