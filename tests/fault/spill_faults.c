/* Transfers of spilled sums fail, in every way that the fault tier knows: an undecided step is lost and can
 * be taken again, of a decided one the job is broken, and no wrong sum is ever applied. Nothing else of the
 * job is on NVMe, so that no other transfer can fail. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "daemon/model/job.h"
#include "daemon/resources/resources.h"
#include "tests/unit/daemon_support.h"
#include "tests/unit/seeds.h"
#include "tests/unit/test.h"

#define UNITS 5
#define ELEMENTS (UINT64_C(1) << 20) /* a pack each */
#define SUM_BYTES (4 * ELEMENTS)
#define MICRO_BATCHES 2
#define STEPS 2
#define COMPARED 1000
/* More than the training makes, and how many are left out between two that fail. */
#define MAX_TRANSFERS 200
#define STRIDE 9
#define STRIDE_BY_DAY 17

static struct scene scene;
static struct actor actor;
static uint64_t budget; /* of two buffers */
static float reference[COMPARED];
static unsigned lost, broken;
static unsigned told; /* of them, as failures of the device, to the log */
static uint32_t initializer = INITIALIZE_ONES;

static const struct actor_job all_in_host = { .stage = 2,
					      .mode = MODE_REPLACE,
					      .parameter_placement = PLACEMENT_HOST,
					      .optimizer_placement = PLACEMENT_HOST,
					      .gradient_placement = PLACEMENT_HOST,
					      .durability = DURABILITY_NONE };

static int define_job(const struct actor_job *job)
{
	int r = actor_enter(&scene, &actor);

	if (r == 0)
		r = actor_open(&actor, job);
	for (unsigned i = 0; i < UNITS && r == 0; i++) {
		char name[8];
		const struct actor_tensor tensor = { name, FORMAT_BF16, initializer, ELEMENTS, false };

		snprintf(name, sizeof(name), "u%u", i);
		r = actor_define(&actor, name, &tensor, 1);
	}
	return r;
}

static int open_job(const struct actor_job *job)
{
	int r = define_job(job);

	return r < 0 ? r : actor_ready(&actor);
}

static int open_spilled(uint64_t host_budget)
{
	struct actor_job job = all_in_host;

	job.gradient_placement = PLACEMENT_NVME;
	job.host_budget = host_budget;
	return open_job(&job);
}

static int take_step(void)
{
	for (unsigned i = 0; i < MICRO_BATCHES * UNITS; i++) {
		uint32_t unit = UNITS - 1 - i % UNITS;

		actor_fill(&actor, FORMAT_BF16, ELEMENTS, 0.25f + (float)i);
		int r = actor_await(&actor, actor_send_push(&actor, unit, 0), 0)->status;

		if (r < 0)
			return r;
	}
	return actor_take_step(&actor);
}

static bool take_line(enum log_level level, const char *line, const struct log_fields *fields)
{
	told += fields->unit && fields->tier && strstr(line, "the open step is lost: look at the disk");
	return true;
}

/* Takes what is lost again, but not for ever. 0, or why there is no going on. */
static int train(void)
{
	for (unsigned tries = 0; tries < STEPS + 3; tries++) {
		int r = actor.step < STEPS ? take_step() : 0;

		if (r == 0 && actor.step++ < STEPS)
			continue;
		if (r != -ESTALE)
			return r;
		lost++;
		assert_non_null(strstr(actor_message(&actor), "is lost: the gradient sums of unit \"u"));
		/* Not as often as that: the log has its limit. */
		assert_true(told > 0);
		r = actor_ready(&actor);
		if (r < 0)
			return r;
	}
	return actor.step > STEPS ? 0 : -ESTALE;
}

static void read_result(float result[COMPARED], uint64_t version)
{
	assert_int_equal(actor_read(&actor, 2, 0, "master", 0, COMPARED, version), 0);
	memcpy(result, actor.window.base, COMPARED * sizeof(*result));
}

static void close_scene(void)
{
	actor_die(&actor);
	scene_close(&scene);
}

static void expect_that_it_can_be_replaced(void)
{
	actor_die(&actor);
	scene_settle(&scene);
	assert_int_equal(open_job(&all_in_host), 0);
	assert_int_equal(take_step(), 0);
}

static int run_with(const char *fault)
{
	float result[COMPARED];

	assert_int_equal(scene_open(&(struct scene_options){ .fault = fault }, &scene), 0);
	int r = open_spilled(budget);

	if (r == 0)
		r = train();
	if (r == 0) {
		read_result(result, STEPS);
		assert_memory_equal(result, reference, sizeof(result));
	} else if (r == -EIO) {
		broken++;
		assert_non_null(strstr(actor_message(&actor), "its sums cannot be read back from"));
	}
	expect_that_it_can_be_replaced();
	close_scene();
	return r;
}

static void fail_some(const char *kind, const char *direction)
{
	char fault[64];

	lost = broken = 0;
	for (unsigned nth = seeds_part(); nth <= MAX_TRANSFERS;
	     nth += seeds_part() > 1 ? STRIDE_BY_DAY : STRIDE) {
		snprintf(fault, sizeof(fault), "%s:%s:%u", kind, direction, nth);
		int r = run_with(fault);

		assert_true(r == 0 || r == -EIO);
	}
}

/* For an addition, which loses the step, or for an update, which loses the job. */
static void a_sum_that_cannot_be_read_back_is_never_applied(void **state)
{
	fail_some("complete", "read");
	assert_true(lost > 0 && broken > 0);
	fail_some("corrupt", "read");
	assert_true(lost > 0 && broken > 0);
}

static void a_sum_that_was_written_wrongly_is_found_out(void **state)
{
	fail_some("corrupt", "write");
	assert_true(lost > 0 && broken > 0);
	fail_some("lose", "write");
	assert_true(lost > 0 && broken > 0);
}

static void a_single_failing_write_goes_elsewhere(void **state)
{
	fail_some("complete", "write");
	assert_int_equal(lost + broken, 0);
}

/* The step is lost whenever it is taken, and what was applied before is there all the same. */
static void lasting_write_errors_lose_the_undecided_step_alone(void **state)
{
	float values[COMPARED];

	lost = 0;
	assert_int_equal(
		scene_open(&(struct scene_options){ .fault = "complete:write:40:EIO:lasting" }, &scene), 0);
	assert_int_equal(open_spilled(budget), 0);
	assert_int_equal(train(), -ESTALE);
	assert_int_equal(actor.step, 1);
	assert_true(lost > 1);
	read_result(values, 1);
	assert_true(values[0] < 1.0f && values[0] > 0.5f);
	expect_that_it_can_be_replaced();
	close_scene();
}

/* Before training sums hold the values that were written. */
static void values_that_cannot_be_read_back_break_the_job(void **state)
{
	static const uint32_t units[] = { 0, 1, 2, 1 };
	struct actor_job job = all_in_host;
	int r = 0;

	job.gradient_placement = PLACEMENT_NVME;
	job.host_budget = budget;
	initializer = INITIALIZE_NONE;
	assert_int_equal(scene_open(&(struct scene_options){ .fault = "complete:read:1" }, &scene), 0);
	assert_int_equal(define_job(&job), 0);
	for (unsigned i = 0; i < ARRAY_LENGTH(units); i++) {
		assert_int_equal(r, 0);
		r = actor_write(&actor, units[i], 0, 0, 1);
	}
	assert_int_equal(r, -EIO);
	assert_non_null(strstr(actor_message(&actor), "unit \"u1\": its sums cannot be read back"));
	initializer = INITIALIZE_ONES;
	expect_that_it_can_be_replaced();
	close_scene();
}

/* The arena and all state are as large as they are, so all that differs is the number of buffers. */
static int setup(void **state)
{
	log_open(LOG_LEVEL_WARNING);
	log_divert(take_line);
	assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
	assert_int_equal(open_spilled(0), 0);
	budget = budget_host_bytes(job_find(scene.node, geteuid(), "play")) - (UNITS - 2) * SUM_BYTES;
	actor_die(&actor);
	scene_settle(&scene);
	assert_int_equal(open_job(&all_in_host), 0);
	assert_int_equal(train(), 0);
	read_result(reference, STEPS);
	close_scene();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sum_that_cannot_be_read_back_is_never_applied),
		cmocka_unit_test(a_sum_that_was_written_wrongly_is_found_out),
		cmocka_unit_test(a_single_failing_write_goes_elsewhere),
		cmocka_unit_test(lasting_write_errors_lose_the_undecided_step_alone),
		cmocka_unit_test(values_that_cannot_be_read_back_break_the_job),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
