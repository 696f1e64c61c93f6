/* Sums that are measured as soon as they have as many micro-batches as in the step before: the norm has the
 * same bits, however many there are in the end. */
#include <math.h>
#include <string.h>

#include "daemon/gradients/own.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

#define ELEMENTS (UINT64_C(1) << 16) /* its root is exact */

static struct actor actor;

static const struct sum *start(void)
{
	const struct actor_tensor large = { "w", FORMAT_BF16, INITIALIZE_ONES, ELEMENTS, false };

	assert_int_equal(actor_enter(&scene, &actor), 0);
	assert_int_equal(actor_open(&actor, &(struct actor_job){ .stage = 2, .mode = MODE_REPLACE }), 0);
	assert_int_equal(actor_define(&actor, "large", &large, 1), 0);
	assert_int_equal(actor_ready(&actor), 0);
	return gradient_sum_of(scene_job("play"), 0, 0);
}

static void push(float value)
{
	actor_fill(&actor, FORMAT_BF16, ELEMENTS, value);
	assert_int_equal(actor_await(&actor, actor_send_push(&actor, 0, 0), 0)->status, 0);
	scene_settle(&scene);
}

static void expect_norm(double sum_of_pushes)
{
	const struct answer *answer = actor_await(&actor, actor_send_step(&actor, 0.1f), 0);

	assert_int_equal(answer->status, 0);
	assert_true(answer->reply->step->gradient_norm == sum_of_pushes * sqrt((double)ELEMENTS));
}

static void a_sum_is_measured_when_it_has_its_usual_micro_batches(void **state)
{
	const struct sum *sum = start();

	push(1.0f);
	push(2.0f);
	assert_int_equal(sum->measured, 0);
	expect_norm(3.0);
	push(2.0f);
	assert_int_equal(sum->measured, 0);
	push(4.0f);
	assert_int_equal(sum->measured, 2);
	expect_norm(6.0);
	assert_int_equal(sum->measured, 0);
}

/* Nobody measures with the step what was measured before: what somebody has changed since is not seen. */
static void it_is_not_measured_again(void **state)
{
	const struct sum *sum = start();

	push(1.0f);
	expect_norm(1.0);
	push(2.0f);
	assert_int_equal(sum->measured, 1);
	((float *)(void *)gradient_sum(scene_job("play"), 0))[0] = NAN;
	expect_norm(2.0);
}

static void more_and_fewer_micro_batches_than_usual_are_measured_with_the_step(void **state)
{
	const struct sum *sum = start();

	push(1.0f);
	expect_norm(1.0);
	push(1.0f);
	assert_int_equal(sum->measured, 1);
	push(4.0f);
	expect_norm(5.0);
	push(8.0f);
	assert_int_equal(sum->measured, 0);
	expect_norm(8.0);
	push(2.0f);
	assert_int_equal(sum->measured, 1);
	expect_norm(2.0);
}

/* What was measured in an epoch that has ended says nothing of the next one. */
static void the_end_of_an_epoch_forgets_it(void **state)
{
	const struct sum *sum = start();

	push(1.0f);
	expect_norm(1.0);
	push(2.0f);
	assert_int_equal(sum->measured, 1);
	actor_die(&actor);
	scene_settle(&scene);
	assert_int_equal(sum->measured, 0);
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_sum_is_measured_when_it_has_its_usual_micro_batches),
		TEST(it_is_not_measured_again),
		TEST(more_and_fewer_micro_batches_than_usual_are_measured_with_the_step),
		TEST(the_end_of_an_epoch_forgets_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
