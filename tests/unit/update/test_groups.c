/* Tensors that move to other parameter groups between two steps: when that counts, for whom, and for how
 * long. Group 0 has the rate 0, so that what is in it stays as it is. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "daemon/residency/residency.h"
#include "daemon/update/early.h"
#include "daemon/update/own.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

#define TENSORS 3
#define ELEMENTS 256

static struct actor first, second;

static void enter(struct actor *actor, uint32_t rank, uint32_t world_size, struct actor_job job)
{
	static const struct actor_tensor tensors[TENSORS] = {
		{ "a", FORMAT_FP32, INITIALIZE_ONES, ELEMENTS, false },
		{ "b", FORMAT_FP32, INITIALIZE_ONES, ELEMENTS, false },
		{ "frozen", FORMAT_FP32, INITIALIZE_ONES, ELEMENTS, true }
	};

	job.rank = rank;
	job.world_size = world_size;
	job.group_count = 3;
	assert_int_equal(actor_enter(&scene, actor), 0);
	assert_int_equal(actor_open(actor, &job), 0);
	assert_int_equal(actor_define(actor, "unit", tensors, TENSORS), 0);
}

static void start_one(struct actor_job job)
{
	enter(&first, 0, 1, job);
	assert_int_equal(actor_ready(&first), 0);
}

static void start_two(struct actor_job job)
{
	enter(&first, 0, 2, job);
	enter(&second, 1, 2, job);
	actor_ready_both(&first, &second);
}

static int move(struct actor *actor, uint32_t a, uint32_t b, uint32_t frozen)
{
	const uint32_t groups[TENSORS] = { a, b, frozen };

	return actor_set_groups(actor, 0, groups, TENSORS);
}

static void expect_refused(struct actor *actor, int status, const char *text, uint32_t a, uint32_t b)
{
	assert_int_equal(move(actor, a, b, 0), status);
	if (!strstr(actor_message(actor), text))
		fail_msg("\"%s\" does not say \"%s\"", actor_message(actor), text);
}

static void expect_groups(struct actor *actor, uint32_t a, uint32_t b, uint32_t frozen)
{
	const uint32_t expected[TENSORS] = { a, b, frozen };
	const Tierd__Wire__GroupsReply *there;

	assert_int_equal(actor_get_groups(actor, 0, &there), 0);
	assert_int_equal(there->n_groups, TENSORS);
	assert_memory_equal(there->groups, expected, sizeof(expected));
}

static uint32_t send_push(struct actor *actor, float value)
{
	float *gradients = (float *)actor->gradients.base;

	for (unsigned i = 0; i < 2 * ELEMENTS; i++)
		gradients[i] = value;
	return actor_send_push(actor, 0, 0);
}

static void push(struct actor *actor, float value)
{
	assert_int_equal(actor_await(actor, send_push(actor, value), 0)->status, 0);
}

static float value_of(uint32_t tensor)
{
	assert_int_equal(actor_read(&first, 0, tensor, "parameter", 0, 1, scene_job("play")->step), 0);
	return *(const float *)first.window.base;
}

static void the_step_that_comes_has_them_there(void **state)
{
	float moved;

	start_one((struct actor_job){ .stage = 3 });
	expect_groups(&first, 0, 0, 0);
	assert_int_equal(move(&first, 0, 1, 0), 0);
	assert_int_equal(move(&first, 1, 0, 2), 0);
	expect_groups(&first, 1, 0, 2);
	assert_int_equal(scene_job("play")->catalog.units[0].tensors[0].group, 0);
	push(&first, 1);
	assert_int_equal(actor_take_step(&first), 0);
	moved = value_of(0);
	assert_true(moved < 1 && value_of(1) == 1);
	expect_groups(&first, 1, 0, 2);
	assert_int_equal(move(&first, 0, 1, 2), 0);
	push(&first, 1);
	assert_int_equal(actor_take_step(&first), 0);
	assert_true(value_of(0) == moved && value_of(1) < 1);
}

static void ranks_have_to_say_the_same(void **state)
{
	uint32_t steps[2];

	start_two((struct actor_job){ .stage = 2 });
	assert_int_equal(move(&first, 1, 0, 0), 0);
	expect_groups(&second, 0, 0, 0);
	send_push(&first, 1);
	steps[0] = actor_send_step(&first, 0.1f);
	assert_int_equal(actor_await(&second, actor_send_step(&second, 0.1f), 0)->status, -EINVAL);
	assert_non_null(strstr(actor_message(&second),
			       "rank 1: unit \"unit\", tensor \"a\": parameter group 0 here, "
			       "1 at the ranks that have closed this step"));
	/* While it waits for the other one. */
	expect_refused(&first, -EBUSY, "rank 0 has a step on its way", 0, 0);
	assert_int_equal(move(&second, 1, 0, 0), 0);
	steps[1] = actor_send_step(&second, 0.1f);
	assert_int_equal(actor_await(&first, steps[0], 0)->status, 0);
	assert_int_equal(actor_await(&second, steps[1], 0)->status, 0);
	assert_true(value_of(0) < 1 && value_of(1) == 1);
	expect_groups(&second, 1, 0, 0);
}

/* It is not decided. */
static void a_step_that_fails_keeps_them_for_the_next(void **state)
{
	start_one((struct actor_job){ .stage = 3, .nonfinite = NONFINITE_REPORT });
	assert_int_equal(move(&first, 1, 0, 0), 0);
	push(&first, INFINITY);
	assert_int_equal(actor_await(&first, actor_send_step(&first, 0.1f), 0)->status, -EDOM);
	expect_groups(&first, 1, 0, 0);
	assert_int_equal(scene_job("play")->catalog.units[0].tensors[0].group, 0);
	push(&first, 1);
	assert_int_equal(actor_take_step(&first), 0);
	assert_true(value_of(0) < 1 && value_of(1) == 1);
}

static void a_step_that_is_skipped_has_them_there(void **state)
{
	start_one((struct actor_job){ .stage = 3, .nonfinite = NONFINITE_SKIP });
	assert_int_equal(move(&first, 1, 0, 0), 0);
	push(&first, INFINITY);
	assert_int_equal(actor_take_step(&first), 0);
	assert_int_equal(scene_job("play")->catalog.units[0].tensors[0].group, 1);
	assert_true(value_of(0) == 1);
}

static void nothing_is_left_of_an_epoch_that_ends(void **state)
{
	const struct actor_job job = { .stage = 2 };

	start_two(job);
	assert_int_equal(move(&first, 1, 1, 0), 0);
	actor_die(&second);
	scene_settle(&scene);
	enter(&second, 1, 2, job);
	actor_ready_both(&first, &second);
	expect_groups(&first, 0, 0, 0);
}

/* What is updated early was so by groups that nobody changes any more. */
static void nothing_is_early_in_a_step_that_moves_them(void **state)
{
	start_one((struct actor_job){ .stage = 3, .optimizer_placement = PLACEMENT_NVME });
	scene_settle(&scene);
	assert_int_equal(move(&first, 1, 0, 0), 0);
	assert_int_equal(actor_begin_step(&first, 0.1f, 1), 0);
	expect_refused(&first, -EBUSY, "before tierd_step_begin", 0, 1);
	push(&first, 1);
	scene_settle(&scene);
	assert_null(scene_job("play")->update->early);
	assert_int_equal(actor_take_step(&first), 0);
	assert_true(value_of(0) < 1 && value_of(1) == 1);
	scene_settle(&scene);
	assert_int_equal(actor_begin_step(&first, 0.1f, 1), 0);
	push(&first, 1);
	while (pack_update(scene_job("play"), 0)->early != EARLY_READY)
		scene_wait(&scene);
	assert_int_equal(actor_take_step(&first), 0);
}

static void groups_that_cannot_be_are_refused(void **state)
{
	static const uint32_t none[TENSORS];

	start_one((struct actor_job){ .stage = 3 });
	assert_int_equal(actor_set_groups(&first, 1, none, TENSORS), -EINVAL);
	assert_int_equal(actor_set_groups(&first, 0, none, TENSORS - 1), -EINVAL);
	assert_non_null(strstr(actor_message(&first), "unit \"unit\" has 3 tensors, and 2 groups are given"));
	expect_refused(&first, -EINVAL, "tensor \"b\" is in parameter group 3; the job has 3", 0, 3);
	expect_refused(&first, -EINVAL, "tensor \"a\" cannot be in parameter group 2, which keeps moments in",
		       2, 0);
	assert_int_equal(move(&first, 0, 0, 2), 0);
	expect_groups(&first, 0, 0, 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SCENE_TEST(the_step_that_comes_has_them_there, scene_setup),
		SCENE_TEST(ranks_have_to_say_the_same, scene_setup),
		SCENE_TEST(a_step_that_fails_keeps_them_for_the_next, scene_setup),
		SCENE_TEST(a_step_that_is_skipped_has_them_there, scene_setup),
		SCENE_TEST(nothing_is_left_of_an_epoch_that_ends, scene_setup),
		SCENE_TEST(nothing_is_early_in_a_step_that_moves_them, scene_setup),
		SCENE_TEST(groups_that_cannot_be_are_refused, scene_setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
