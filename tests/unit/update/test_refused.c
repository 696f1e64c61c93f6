/* Pushes that are refused: no step goes on without them before its rank knows, and nothing else of them is
 * left. */
#include <errno.h>
#include <string.h>

#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

#define ELEMENTS 4
#define NO_BUFFER 99

static struct actor first, second;

static void open_rank(struct actor *actor, struct actor_job job)
{
	static const struct actor_tensor tensor = { "w", FORMAT_FP32, INITIALIZE_ONES, ELEMENTS, false };

	job.stage = 2;
	assert_int_equal(actor_open(actor, &job), 0);
	assert_int_equal(actor_define(actor, "unit", &tensor, 1), 0);
}

static void start_one(struct actor_job job)
{
	assert_int_equal(actor_enter(&scene, &first), 0);
	open_rank(&first, job);
	assert_int_equal(actor_ready(&first), 0);
}

static void join_second(void)
{
	assert_int_equal(actor_enter(&scene, &second), 0);
	open_rank(&second, (struct actor_job){ .rank = 1, .world_size = 2 });
	actor_ready_both(&first, &second);
}

static void start_two(void)
{
	assert_int_equal(actor_enter(&scene, &first), 0);
	open_rank(&first, (struct actor_job){ .world_size = 2 });
	join_second();
}

static uint32_t push(struct actor *actor, float value)
{
	actor_fill(actor, FORMAT_FP32, ELEMENTS, value);
	return actor_send_push(actor, 0, 0);
}

static void push_in_vain(struct actor *actor)
{
	uint32_t refused = actor_send_silent_push(actor, 0, NO_BUFFER);

	assert_int_equal(actor_await(actor, refused, 0)->status, -EINVAL);
}

/* The norm of its step, which it takes. */
static double norm_of(struct actor *actor, uint32_t step)
{
	const struct answer *answer = actor_await(actor, step, 0);

	assert_int_equal(answer->status, 0);
	return answer->reply->step->gradient_norm;
}

static void a_step_without_a_refused_push_is_refused_until_its_rank_knows(void **state)
{
	start_one((struct actor_job){ 0 });
	push(&first, 1.0f);
	push_in_vain(&first);
	assert_int_equal(actor_take_step(&first), -EINVAL);
	assert_non_null(strstr(actor_message(&first), "an earlier push failed: there is no gradient buffer"));
	first.refused_pushes = 1;
	/* What was not refused is in it. */
	assert_true(norm_of(&first, actor_send_step(&first, 0.1f)) == 2.0);
}

static void a_new_epoch_knows_nothing_of_what_the_last_one_has_heard(void **state)
{
	uint32_t step;

	start_two();
	push_in_vain(&first);
	assert_int_equal(actor_begin_step(&first, 0.1f, 1), 0);
	actor_die(&second);
	assert_int_equal(first.ended_epochs, 1);
	join_second();
	assert_int_equal(actor_begin_step(&first, 0.1f, 1), 0);
	step = actor_send_step(&first, 0.1f);
	push(&second, 1.0f);
	actor_send_step(&second, 0.1f);
	assert_true(norm_of(&first, step) == 2.0);
}

static void a_refused_push_is_none_of_the_micro_batches(void **state)
{
	start_one((struct actor_job){ .is_pushed_once = true });
	push_in_vain(&first);
	assert_int_equal(actor_await(&first, push(&first, 1.0f), 0)->status, 0);
	/* The second one, which leaves its buffer to others. */
	assert_int_equal(actor_await(&first, actor_send_push(&first, 0, 1), 0)->status, -EINVAL);
	first.refused_pushes = 1;
	assert_true(norm_of(&first, actor_send_step(&first, 0.1f)) == 2.0);
	assert_int_equal(actor_await(&first, actor_send_push(&first, 0, 1), 0)->status, 0);
	assert_true(norm_of(&first, actor_send_step(&first, 0.1f)) == 0.0);
}

/* By a rank that has closed its part, before the step is taken. */
static void more_pushes_than_were_announced_are_refused(void **state)
{
	uint32_t step;

	start_two();
	step = actor_send_step(&first, 0.1f);
	assert_int_equal(actor_begin_step(&first, 0.1f, 1), 0);
	actor_send_step(&second, 0.1f);
	norm_of(&first, step);
	assert_int_equal(actor_begin_step(&first, 0.1f, 1), -EBUSY);
	push(&first, 1.0f);
	assert_int_equal(actor_await(&first, actor_send_push(&first, 0, 1), 0)->status, -EINVAL);
	assert_non_null(strstr(actor_message(&first), "1 micro-batches were announced, this is one more"));
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_step_without_a_refused_push_is_refused_until_its_rank_knows),
		TEST(a_new_epoch_knows_nothing_of_what_the_last_one_has_heard),
		TEST(a_refused_push_is_none_of_the_micro_batches),
		TEST(more_pushes_than_were_announced_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
