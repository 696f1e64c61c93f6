/* Each transfer of a training fails in turn, in every way that the fault tier knows, with both engines: a
 * wrong byte is never served, whatever fails is answered with an error, and the node trains others
 * afterwards. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/durability/durable.h"
#include "daemon/model/job.h"
#include "daemon/recovery/restore.h"
#include "tests/fault/daemon_training.h"
#include "tests/unit/test.h"

/* More than the training makes. */
#define MAX_TRANSFERS 200

static struct scene scene;
static struct actor actor;
static struct actor_job trained = { .stage = 3 };
static float reference[TRAINING_VALUES];

/* In host memory alone: the faults are those of a job's store. */
static void expect_training(struct actor *rank, const char *name, uint32_t mode)
{
	const struct actor_job job = { .name = name,
				       .stage = 3,
				       .mode = mode,
				       .parameter_placement = PLACEMENT_HOST,
				       .optimizer_placement = PLACEMENT_HOST };

	scene.node->settings.durability = DURABILITY_NONE;
	assert_int_equal(training_run(&scene, rank, &job), 0);
	scene.node->settings.durability = DURABILITY_DEFAULT;
}

static void leave(void)
{
	actor_die(&actor);
	scene_settle(&scene);
}

/* A job that has lost its state says so to everyone who comes, and can be replaced. */
static void expect_that_it_can_be_replaced(void)
{
	leave();
	expect_training(&actor, "play", MODE_REPLACE);
}

static int run_with(const char *fault, bool is_plain_io)
{
	const struct scene_options options = { .fault = fault, .is_plain_io = is_plain_io };
	float result[TRAINING_VALUES];

	assert_int_equal(scene_open(&options, &scene), 0);
	int r = training_run(&scene, &actor, &trained);

	if (r == 0)
		r = training_read(&actor, result);
	if (r == 0)
		assert_memory_equal(result, reference, sizeof(result));
	leave();
	expect_training(&actor, "next", MODE_EITHER);
	expect_that_it_can_be_replaced();
	actor_die(&actor);
	scene_close(&scene);
	return r;
}

/* Returns how many of the transfers, failing alone, made the training fail; it ends when so many more have
 * not. */
static unsigned fail_each_of(const char *kind, const char *direction, bool is_plain_io, unsigned patience)
{
	unsigned failures = 0;
	char fault[64];

	for (unsigned nth = 1; nth <= MAX_TRANSFERS; nth++) {
		snprintf(fault, sizeof(fault), "%s:%s:%u", kind, direction, nth);
		if (run_with(fault, is_plain_io) < 0)
			failures++;
		else if (nth > failures + patience)
			break;
	}
	return failures;
}

static unsigned fail_each(const char *kind, const char *direction, bool is_plain_io)
{
	return fail_each_of(kind, direction, is_plain_io, 16);
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
	/* Superblocks and records come first, and are not read again. */
	assert_true(fail_each_of("corrupt", "write", false, 40) > 0);
	assert_true(fail_each("misdirect", "read", false) > 0);
}

/* ---- Flushes ---- */

/* It trains while the other job is broken, and in the way of nobody. */
static void expect_that_a_neighbour_trains(void)
{
	struct actor neighbour = { 0 };

	expect_training(&neighbour, "neighbour", MODE_EITHER);
	actor_die(&neighbour);
}

static void expect_that_it_resumes(void)
{
	const struct actor_job again = { .stage = trained.stage,
					 .optimizer = trained.optimizer,
					 .mode = MODE_RESUME };
	float result[TRAINING_VALUES];

	assert_int_equal(training_resume(&scene, &actor, &again), 0);
	assert_int_equal(training_read(&actor, result), 0);
	assert_memory_equal(result, reference, sizeof(result));
}

/* Whoever asks hears what is durable, and that it comes back there; a device that works again has it. */
static void expect_that_it_comes_back(uint64_t step)
{
	char durable[64];

	snprintf(durable, sizeof(durable), "(its last durable step is %u)", (unsigned)step);
	assert_int_equal(actor_gather(&actor, 0, step, NULL), -EIO);
	if (!strstr(actor_message(&actor), durable))
		fail_msg("\"%s\" does not say \"%s\"", actor_message(&actor), durable);
	expect_that_a_neighbour_trains();
	scene.node->fault = NULL;
	leave();
	expect_that_it_resumes();
}

/* Whether the flush was one that the training needs. */
static bool fails_by_flush(const char *kind, unsigned nth)
{
	char fault[64];
	const struct scene_options options = { .fault = fault };
	const struct job *job;
	uint64_t step;

	snprintf(fault, sizeof(fault), "%s:flush:%u", kind, nth);
	assert_int_equal(scene_open(&options, &scene), 0);
	int r = training_run(&scene, &actor, &trained);

	scene_settle(&scene);
	job = job_find(scene.node, geteuid(), "play");
	bool has_failed = r < 0 || job_is_broken(job);

	if (has_failed && durable_has_step(job, &step)) {
		expect_that_it_comes_back(step);
	} else if (has_failed) {
		/* Before anything was durable. */
		expect_that_a_neighbour_trains();
		scene.node->fault = NULL;
		expect_that_it_can_be_replaced();
	}
	actor_die(&actor);
	scene_close(&scene);
	return has_failed;
}

static void a_failed_flush_breaks_the_job_which_comes_back(void **state)
{
	static const char *const kinds[] = { "submit", "complete" };

	for (unsigned i = 0; i < ARRAY_LENGTH(kinds); i++) {
		unsigned nth = 1;

		while (fails_by_flush(kinds[i], nth))
			assert_true(++nth < MAX_TRANSFERS);
		/* Of the creation, and of two commits at least. */
		assert_true(nth > 5);
	}
}

/* As after a restart: what is on the device is all that is known. */
static bool opens_again(const char *fault)
{
	struct job *job = job_find(scene.node, geteuid(), "play");

	scene.node->fault = fault;
	life_step(job, LIFE_REOPEN);
	scene_settle(&scene);
	job = job_find(scene.node, geteuid(), "play");
	assert_non_null(job);
	return !job_is_broken(job);
}

static void a_failed_flush_of_an_opening_loses_nothing(void **state)
{
	unsigned nth = 0;
	char fault[64];

	assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
	assert_int_equal(training_run(&scene, &actor, &trained), 0);
	scene_settle(&scene);
	leave();
	do
		snprintf(fault, sizeof(fault), "complete:flush:%u", ++nth);
	while (!opens_again(fault));
	/* Before anything is read, and of the commit that an opening is. */
	assert_true(nth > 2);
	expect_that_it_resumes();
	assert_int_equal(actor.step, 2);
	actor_die(&actor);
	scene_close(&scene);
}

/* ---- Groups ---- */

static int set_reference(void)
{
	assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
	assert_int_equal(training_run(&scene, &actor, &trained), 0);
	assert_int_equal(training_read(&actor, reference), 0);
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
		cmocka_unit_test(a_failed_flush_breaks_the_job_which_comes_back),
		cmocka_unit_test(a_failed_flush_of_an_opening_loses_nothing),
	};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(failing_reads_are_answered_with_errors),
		cmocka_unit_test(a_failing_write_is_survived_or_answered),
		cmocka_unit_test(lasting_write_errors_are_answered),
		cmocka_unit_test(wrong_bytes_are_never_served),
		cmocka_unit_test(a_failed_flush_breaks_the_job_which_comes_back),
		cmocka_unit_test(a_failed_flush_of_an_opening_loses_nothing),
	};

	int failed = cmocka_run_group_tests(tests, setup, NULL);

	return failed + cmocka_run_group_tests_name("with the optimizer none", of_owner, setup_owner, NULL);
}
