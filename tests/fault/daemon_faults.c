/* Each transfer of a training fails in turn, in every way that the fault tier knows, with both engines: a
 * wrong byte is never served, whatever fails is answered with an error, and the node trains others
 * afterwards. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "common/log.h"
#include "tests/fault/daemon_training.h"

/* More than the training makes. */
#define MAX_TRANSFERS 200

static struct scene scene;
static struct actor actor;
static struct actor_job trained = { .stage = 3 };
static float reference[TRAINING_ELEMENTS];

/* The faults are those of a job's store: one in host memory meets none. */
static void expect_that_others_train(void)
{
	const struct actor_job next = { .name = "next",
					.stage = 3,
					.parameter_placement = PLACEMENT_HOST,
					.optimizer_placement = PLACEMENT_HOST };

	actor_die(&actor);
	scene_settle(&scene);
	assert_int_equal(training_run(&scene, &actor, &next), 0);
}

/* A job that has lost its state says so to everyone who comes, and can be replaced. */
static void expect_that_it_can_be_replaced(void)
{
	const struct actor_job again = { .stage = 3,
					 .mode = MODE_REPLACE,
					 .parameter_placement = PLACEMENT_HOST,
					 .optimizer_placement = PLACEMENT_HOST };

	actor_die(&actor);
	scene_settle(&scene);
	assert_int_equal(training_run(&scene, &actor, &again), 0);
}

/* The written tensor's master after a training; the value of one that succeeded is always the same. */
static int read_result(float result[TRAINING_ELEMENTS])
{
	int r = actor_read(&actor, 1, 1, "master", 0, TRAINING_ELEMENTS, 2);

	if (r == 0)
		memcpy(result, actor.window.base, TRAINING_ELEMENTS * sizeof(*result));
	return r;
}

static int run_with(const char *fault, bool is_plain_io)
{
	const struct scene_options options = { .fault = fault, .is_plain_io = is_plain_io };
	float result[TRAINING_ELEMENTS];

	assert_int_equal(scene_open(&options, &scene), 0);
	int r = training_run(&scene, &actor, &trained);

	if (r == 0)
		r = read_result(result);
	if (r == 0)
		assert_memory_equal(result, reference, sizeof(result));
	expect_that_others_train();
	expect_that_it_can_be_replaced();
	actor_die(&actor);
	scene_close(&scene);
	return r;
}

/* Returns how many of the transfers, failing alone, made the training fail. */
static unsigned fail_each(const char *kind, const char *direction, bool is_plain_io)
{
	unsigned failures = 0;
	char fault[64];

	for (unsigned nth = 1; nth <= MAX_TRANSFERS; nth++) {
		snprintf(fault, sizeof(fault), "%s:%s:%u", kind, direction, nth);
		if (run_with(fault, is_plain_io) < 0)
			failures++;
		else if (nth > failures + 16)
			break;
	}
	return failures;
}

static void failing_reads_are_answered_with_errors(void **state)
{
	assert_true(fail_each("submit", "read", false) > 0);
	assert_true(fail_each("complete", "read", false) > 0);
	assert_true(fail_each("complete", "read", true) > 0);
}

/* A write that fails once is written to another place. */
static void a_failing_write_is_survived_or_answered(void **state)
{
	fail_each("submit", "write", false);
	assert_int_equal(fail_each("complete", "write", false), 0);
	assert_int_equal(fail_each("complete", "write", true), 0);
}

static void lasting_write_errors_are_answered(void **state)
{
	assert_true(run_with("complete:write:1:EIO:lasting", false) < 0);
	assert_true(run_with("complete:write:8:ENOSPC:lasting", false) < 0);
	assert_true(run_with("submit:write:3:EIO:lasting", false) < 0);
}

static void wrong_bytes_are_never_served(void **state)
{
	assert_true(fail_each("corrupt", "read", false) > 0);
	assert_true(fail_each("corrupt", "write", false) > 0);
	assert_true(fail_each("misdirect", "read", false) > 0);
}

static int set_reference(void)
{
	assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
	assert_int_equal(training_run(&scene, &actor, &trained), 0);
	assert_int_equal(read_result(reference), 0);
	actor_die(&actor);
	scene_close(&scene);
	return 0;
}

static int setup(void **state)
{
	/* The errors that it logs are what is asked for. */
	log_open(LOG_LEVEL_ERROR);
	return set_reference();
}

static int setup_owner(void **state)
{
	trained.optimizer = OPTIMIZER_NONE;
	return set_reference();
}

int main(void)
{
	const struct CMUnitTest of_owner[] = {
		cmocka_unit_test(failing_reads_are_answered_with_errors),
		cmocka_unit_test(lasting_write_errors_are_answered),
		cmocka_unit_test(wrong_bytes_are_never_served),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(failing_reads_are_answered_with_errors),
		cmocka_unit_test(a_failing_write_is_survived_or_answered),
		cmocka_unit_test(lasting_write_errors_are_answered),
		cmocka_unit_test(wrong_bytes_are_never_served),
	};

	int failed = cmocka_run_group_tests(tests, setup, NULL);

	return failed + cmocka_run_group_tests_name("with the optimizer none", of_owner, setup_owner, NULL);
}
