#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "offload/device/fault.h"
#include "offload/device/host.h"
#include "tests/unit/io_support.h"
#include "tests/unit/test.h"

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

static int flush(struct fixture *fixture)
{
	struct test_io test;
	int r;

	test_io_init(&test, TIER_FLUSH, NULL, 0, 0);
	r = tier_submit(fixture->fault, &test.io);
	return r < 0 ? r : test_io_wait(&fixture->loop, &test);
}

static void a_flush_fails_where_it_is_told_to(void **state)
{
	unsigned char buffer[LENGTH] = { 1 };
	struct fixture fixture;

	open_fixture(&fixture, "complete:flush:2:EIO");
	assert_int_equal(transfer(&fixture, TIER_WRITE, buffer, 0), 0);
	assert_int_equal(flush(&fixture), 0);
	assert_int_equal(transfer(&fixture, TIER_READ, buffer, 0), 0);
	assert_int_equal(flush(&fixture), -EIO);
	assert_int_equal(flush(&fixture), 0);
	assert_int_equal(fixture.fault->submitted[TIER_FLUSH].requests, 3);
	assert_int_equal(fixture.loop.hosts[0]->submitted[TIER_FLUSH].requests, 2);
	close_fixture(&fixture);
	open_fixture(&fixture, "lose:flush:1");
	assert_int_equal(flush(&fixture), 0);
	assert_int_equal(fixture.loop.hosts[0]->submitted[TIER_FLUSH].requests, 0);
	close_fixture(&fixture);
}

/* In a process of its own, whose device outlives it. */
static void expect_kill(unsigned char *shared, const char *text, unsigned char expected)
{
	struct fault_config config;
	pid_t child;
	int status;

	memset(shared, 0, 2 * LENGTH);
	assert_int_equal(fault_config_parse(text, &config), 0);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		unsigned char buffer[LENGTH];
		struct fixture fixture = { 0 };

		memset(buffer, 7, sizeof(buffer));
		if (host_tier_new(shared, 2 * LENGTH, &fixture.loop.hosts[0]) == 0 &&
		    fault_tier_new(fixture.loop.hosts[0], &config, &fixture.fault) == 0) {
			transfer(&fixture, TIER_WRITE, buffer, 0);
			transfer(&fixture, TIER_READ, buffer, 0);
			transfer(&fixture, TIER_WRITE, buffer, LENGTH);
		}
		_exit(1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	assert_int_equal(shared[0], 7);
	assert_int_equal(shared[LENGTH], expected);
}

static void a_process_is_killed_before_or_after_a_transfer(void **state)
{
	unsigned char *shared =
		mmap(NULL, 2 * LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(shared != MAP_FAILED);
	expect_kill(shared, "kill:write:2", 0);
	expect_kill(shared, "kill-after:write:2", 7);
	expect_kill(shared, "kill-after:read:1", 0);
	munmap(shared, 2 * LENGTH);
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
		"kill:write",
		"kill-before:write:1",
		"corrupt:flush:1",
		"misdirect:flush:1",
		"complete:write:99999999999999999999",
		"complete:write:1:EIO:lasting:and:so:on:and:so:on:and:so:on:and:so:on",
	};
	struct fault_config config = { .countdown = 42 };

	for (size_t i = 0; i < ARRAY_LENGTH(bad); i++)
		assert_int_equal(fault_config_parse(bad[i], &config), -EINVAL);
	assert_int_equal(config.countdown, 42);
	assert_int_equal(fault_config_parse("complete:read:7:EROFS:lasting", &config), 0);
	assert_int_equal(config.kind, FAULT_COMPLETE);
	assert_int_equal(config.direction, TIER_READ);
	assert_int_equal(config.countdown, 7);
	assert_int_equal(config.error, EROFS);
	assert_true(config.is_lasting);
	assert_int_equal(fault_config_parse("kill:write:40", &config), 0);
	assert_int_equal(config.kind, FAULT_KILL);
	assert_int_equal(config.direction, TIER_WRITE);
	assert_int_equal(config.countdown, 40);
	assert_int_equal(fault_config_parse("kill-after:flush:3", &config), 0);
	assert_int_equal(config.kind, FAULT_KILL_AFTER);
	assert_int_equal(config.direction, TIER_FLUSH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_transfer_that_was_named_fails),
		cmocka_unit_test(a_lasting_fault_lasts),
		cmocka_unit_test(a_write_that_fails_or_is_lost_has_not_happened),
		cmocka_unit_test(corruption_flips_one_bit_and_spares_the_callers_buffer),
		cmocka_unit_test(a_misdirected_write_lands_beside),
		cmocka_unit_test(a_flush_fails_where_it_is_told_to),
		cmocka_unit_test(a_process_is_killed_before_or_after_a_transfer),
		cmocka_unit_test(only_complete_descriptions_are_understood),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
