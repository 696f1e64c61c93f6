#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "offload/fault.h"
#include "offload/host.h"
#include "tests/unit/io_support.h"

#define LENGTH 8192

static unsigned char device[4 * LENGTH];

struct fixture {
	struct tier *fault;
	struct io_loop loop;
};

static void open_fixture(struct fixture *fixture, const char *text)
{
	struct fault_config config;

	*fixture = (struct fixture){ 0 };
	memset(device, 0, sizeof(device));
	assert_int_equal(fault_config_parse(text, &config), 0);
	assert_int_equal(host_tier_new(device, sizeof(device), &fixture->loop.hosts[0]), 0);
	assert_int_equal(fault_tier_new(fixture->loop.hosts[0], &config, &fixture->fault), 0);
}

static void close_fixture(struct fixture *fixture)
{
	fixture->fault = tier_free(fixture->fault);
}

static int transfer(struct fixture *fixture, enum tier_direction direction, void *buffer, uint64_t offset)
{
	struct test_io test;
	int r;

	test_io_init(&test, direction, buffer, offset, LENGTH);
	r = tier_submit(fixture->fault, &test.io);
	assert_int_equal(test.done_count, 0);
	return r < 0 ? r : test_io_wait(&fixture->loop, &test);
}

static void only_the_transfer_that_was_named_fails(void **state)
{
	unsigned char buffer[LENGTH] = { 1 };
	struct fixture fixture;

	open_fixture(&fixture, "submit:write:2:ENOSPC");
	assert_int_equal(transfer(&fixture, TIER_WRITE, buffer, 0), 0);
	assert_int_equal(transfer(&fixture, TIER_READ, buffer, 0), 0);
	assert_false(fault_tier_has_tripped(fixture.fault));
	assert_int_equal(transfer(&fixture, TIER_WRITE, buffer, 0), -ENOSPC);
	assert_true(fault_tier_has_tripped(fixture.fault));
	assert_int_equal(transfer(&fixture, TIER_WRITE, buffer, 0), 0);
	close_fixture(&fixture);
}

static void a_lasting_fault_lasts(void **state)
{
	unsigned char buffer[LENGTH] = { 1 };
	struct fixture fixture;

	open_fixture(&fixture, "complete:read:2:lasting");
	assert_int_equal(transfer(&fixture, TIER_READ, buffer, 0), 0);
	for (int i = 0; i < 3; i++)
		assert_int_equal(transfer(&fixture, TIER_READ, buffer, 0), -EIO);
	assert_int_equal(transfer(&fixture, TIER_WRITE, buffer, 0), 0);
	close_fixture(&fixture);
}

static void a_write_that_fails_or_is_lost_has_not_happened(void **state)
{
	static const struct {
		const char *text;
		int status;
	} cases[] = { { "complete:write:1:EIO", -EIO }, { "lose:write:1", 0 } };

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		unsigned char buffer[LENGTH], before[LENGTH];
		struct fixture fixture;

		memset(buffer, 3, sizeof(buffer));
		memcpy(before, buffer, sizeof(buffer));
		open_fixture(&fixture, cases[i].text);
		assert_int_equal(transfer(&fixture, TIER_WRITE, buffer, 0), cases[i].status);
		assert_int_equal(device[0] | device[LENGTH - 1], 0);
		assert_memory_equal(buffer, before, sizeof(buffer));
		close_fixture(&fixture);
	}
}

static void corruption_flips_one_bit_and_spares_the_callers_buffer(void **state)
{
	unsigned char buffer[LENGTH], good[LENGTH];
	struct fixture fixture;

	pages_fill(good, sizeof(good), 4);
	memcpy(buffer, good, sizeof(good));
	open_fixture(&fixture, "corrupt:write:1");
	assert_int_equal(transfer(&fixture, TIER_WRITE, buffer, 0), 0);
	assert_memory_equal(buffer, good, sizeof(good));
	assert_int_equal(device[0], good[0] ^ 1);
	assert_memory_equal(device + 1, good + 1, LENGTH - 1);
	close_fixture(&fixture);

	open_fixture(&fixture, "corrupt:read:1");
	memcpy(device, good, sizeof(good));
	assert_int_equal(transfer(&fixture, TIER_READ, buffer, 0), 0);
	assert_int_equal(buffer[0], good[0] ^ 1);
	assert_memory_equal(buffer + 1, good + 1, LENGTH - 1);
	assert_memory_equal(device, good, sizeof(good));
	close_fixture(&fixture);
}

static void a_misdirected_write_lands_beside(void **state)
{
	unsigned char buffer[LENGTH];
	struct fixture fixture;

	memset(buffer, 6, sizeof(buffer));
	open_fixture(&fixture, "misdirect:write:1:lasting");
	assert_int_equal(transfer(&fixture, TIER_WRITE, buffer, 2 * LENGTH), 0);
	assert_int_equal(device[2 * LENGTH], 0);
	assert_int_equal(device[LENGTH], 6);
	assert_int_equal(transfer(&fixture, TIER_WRITE, buffer, 0), 0);
	assert_int_equal(device[0], 0);
	close_fixture(&fixture);
}

static void only_complete_descriptions_are_understood(void **state)
{
	static const char *const bad[] = {
		"",
		"complete",
		"complete:write",
		"explode:write:1",
		"complete:both:1",
		"complete:write:",
		"complete:write:x",
		"complete:write:-1",
		"complete:write:1x",
		"complete:write:1:EWHAT",
		"complete:write:1:EIO:lasting:more",
		"complete:write:99999999999999999999",
		"complete:write:1:EIO:lasting:and:so:on:and:so:on:and:so:on:and:so:on",
	};
	struct fault_config config = { .countdown = 42 };

	for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
		assert_int_equal(fault_config_parse(bad[i], &config), -EINVAL);
	assert_int_equal(config.countdown, 42);
	assert_int_equal(fault_config_parse("complete:read:7:EROFS:lasting", &config), 0);
	assert_int_equal(config.kind, FAULT_COMPLETE);
	assert_true(config.is_read);
	assert_int_equal(config.countdown, 7);
	assert_int_equal(config.error, EROFS);
	assert_true(config.is_lasting);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_transfer_that_was_named_fails),
		cmocka_unit_test(a_lasting_fault_lasts),
		cmocka_unit_test(a_write_that_fails_or_is_lost_has_not_happened),
		cmocka_unit_test(corruption_flips_one_bit_and_spares_the_callers_buffer),
		cmocka_unit_test(a_misdirected_write_lands_beside),
		cmocka_unit_test(only_complete_descriptions_are_understood),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
