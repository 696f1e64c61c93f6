/* Gradients that are put aside: whatever becomes of the step meanwhile, each is summed once, into the step
 * that it belongs to. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/gradients/own.h"
#include "daemon/gradients/gradients.h"
#include "daemon/resources/resources.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

#define ELEMENTS 1000

static struct actor first, second;
static struct blockade blockade;

static void open_rank(struct actor *actor, uint32_t rank)
{
	const struct actor_tensor tensor = { "w", FORMAT_FP32, INITIALIZE_ONES, ELEMENTS, false };
	const struct actor_tensor other = { "o", FORMAT_FP32, INITIALIZE_ONES, ELEMENTS, false };
	const struct actor_job job = {
		.stage = 2, .rank = rank, .world_size = 2, .nonfinite = NONFINITE_REPORT
	};

	assert_int_equal(actor_enter(&scene, actor), 0);
	assert_int_equal(actor_open(actor, &job), 0);
	assert_int_equal(actor_define(actor, "unit", &tensor, 1), 0);
	assert_int_equal(actor_define(actor, "other", &other, 1), 0);
}

static struct job *start_two(void)
{
	open_rank(&first, 0);
	open_rank(&second, 1);
	actor_ready_both(&first, &second);
	return scene_job("play");
}

static void push(struct actor *actor, uint32_t buffer, float value)
{
	float *gradients = (float *)(actor->gradients.base + buffer * actor->buffer_bytes);

	for (unsigned i = 0; i < ELEMENTS; i++)
		gradients[i] = value;
	actor_send_push(actor, 0, buffer);
}

/* ---- The tests ---- */

static void take_good_step(void)
{
	uint32_t steps[2];

	for (unsigned i = 0; i < first.buffer_count; i++)
		push(&second, i, 1.0f);
	steps[0] = actor_send_step(&first, 0.1f);
	steps[1] = actor_send_step(&second, 0.1f);
	assert_int_equal(actor_await(&first, steps[0], 0)->status, 0);
	assert_int_equal(actor_await(&second, steps[1], 0)->status, 0);
	/* Every push of both, and nothing of the step that failed. */
	double norm = actor_find(&first, steps[0], 0)->reply->step->gradient_norm;

	assert_true(fabs(norm - 2.0 * first.buffer_count * sqrt(ELEMENTS)) < 1e-3);
}

static void gradients_on_their_way_aside_survive_a_failed_step(void **state)
{
	const struct job *job = start_two();
	uint32_t steps[2], wait;

	push(&first, 0, 1.0f);
	push(&second, 0, INFINITY);
	scene_settle(&scene);
	steps[0] = actor_send_step(&first, 0.1f);
	/* It pushes ahead for the step after it, with all its buffers. */
	for (unsigned i = 0; i < first.buffer_count; i++)
		push(&first, i, 1.0f);
	steps[1] = actor_send_step(&second, 0.1f);
	assert_true(norm_is_running(job));
	blockade_begin(&scene, scene.node->workers, &blockade);
	wait = actor_send_buffer_wait(&first, 0, 2);
	assert_int_equal(job->gradients->reductions_running, 1);
	assert_int_equal(actor_await(&first, steps[0], 0)->status, -EDOM);
	assert_int_equal(actor_await(&second, steps[1], 0)->status, -EDOM);
	assert_int_equal(job->gradients->reductions_running, 1);
	blockade_end(&blockade);
	assert_int_equal(actor_await(&first, wait, 0)->status, 0);
	QUEUE_FOREACH (link, &job->gradients->sums[0].waiting)
		assert_int_equal(queue_entry(link, struct contribution, link)->step, gradient_open_step(job));
	take_good_step();
}

/* One rank pushes one unit, the other another, and none ever comes to both. The first one waits for a buffer
 * then, and all that were planned to put gradients aside are taken. */
static struct job *block_first(uint32_t *ret_wait)
{
	struct job *job = start_two();

	for (unsigned i = 0; i < first.buffer_count; i++) {
		actor_send_push(&first, 0, i);
		actor_send_push(&second, 1, i);
	}
	for (unsigned i = 0; i < job->options.world_size; i++) {
		assert_int_equal(actor_await(&first, actor_send_buffer_wait(&first, 0, 2), 0)->status, 0);
		actor_send_push(&first, 0, 0);
	}
	*ret_wait = actor_send_buffer_wait(&first, 0, 2);
	return job;
}

static void buffers_beyond_the_plan_are_given_back_when_nobody_trains(void **state)
{
	uint32_t wait;
	struct job *job = block_first(&wait);
	uint64_t planned = promised_bytes(job),
		 others = budget_host_used(scene.node) - budget_host_bytes(job);

	/* The second one may still push what it waits for. */
	scene_settle(&scene);
	assert_int_equal(job->gradients->extra_spares, 0);
	assert_int_equal(actor_await(&second, actor_send_buffer_wait(&second, 0, 2), 0)->status, 0);
	assert_true(job->gradients->extra_spares > 0 && promised_bytes(job) > planned);
	assert_int_equal(budget_host_used(scene.node) - budget_host_bytes(job), others);
	actor_die(&first);
	actor_die(&second);
	scene_settle(&scene);
	assert_int_equal(promised_bytes(job), planned);
	assert_int_equal(budget_host_used(scene.node) - budget_host_bytes(job), others);
}

static void there_are_none_beyond_the_plan_where_the_node_has_no_room(void **state)
{
	uint32_t wait;
	const struct job *job = block_first(&wait);

	scene.node->settings.host_budget = budget_host_used(scene.node);
	actor_send_buffer_wait(&second, 0, 2);
	scene_settle(&scene);
	assert_non_null(actor_find(&first, wait, 0));
	assert_int_equal(actor_find(&first, wait, 0)->status, -ENOBUFS);
	assert_non_null(strstr(actor_message(&first), "no gradient buffer of rank 0 is free"));
	assert_int_equal(job->gradients->extra_spares, 0);
}

/* ---- A unit that is larger than the others ---- */

#define PAGE 1024 /* elements */
#define LARGE (16 * PAGE)

static void define_with_large(struct actor *actor, uint32_t rank, uint32_t world_size)
{
	static const uint64_t elements[] = { PAGE, LARGE, PAGE };
	const struct actor_job job = { .stage = 3, .rank = rank, .world_size = world_size };

	assert_int_equal(actor_enter(&scene, actor), 0);
	assert_int_equal(actor_open(actor, &job), 0);
	assert_int_equal(actor_define_sizes(actor, FORMAT_FP32, elements, ARRAY_LENGTH(elements)), 0);
}

static void expect_push(uint32_t unit, uint32_t buffer, int r, const char *text)
{
	assert_int_equal(actor_await(&first, actor_send_push_at(&first, unit, buffer, 0), 0)->status, r);
	if (text)
		assert_non_null(strstr(actor_message(&first), text));
}

static void it_is_pushed_from_a_buffer_of_its_own_alone(void **state)
{
	const struct job *job;

	define_with_large(&first, 0, 1);
	assert_int_equal(actor_ready(&first), 0);
	job = scene_job("play");
	assert_int_equal(first.buffer_count, 3);
	assert_int_equal(first.buffer_bytes, 4 * PAGE);
	assert_int_equal(first.last_buffer_bytes, 4 * LARGE);
	assert_int_equal(job->members.ranks[0]->gradients.length, 2 * 4 * PAGE + 4 * LARGE);
	expect_push(1, 2, 0, NULL);
	expect_push(0, 0, 0, NULL);
	expect_push(2, 1, 0, NULL);
	/* What lies behind a buffer is not the unit's. */
	expect_push(1, 0, -EINVAL, "gradient buffer 0 is not for unit \"u1\"");
	expect_push(1, 1, -EINVAL, "gradient buffer 1 is not for unit \"u1\"");
	expect_push(0, 2, -EINVAL, "gradient buffer 2 is not for unit \"u0\"");
	expect_push(1, 3, -EINVAL, "there is no gradient buffer 3");
	expect_push(1, UINT32_MAX, -EINVAL, "there is no gradient buffer");
	assert_int_equal(actor_take_step(&first), 0);
}

static uint32_t buffer_state(const struct actor *actor, uint32_t buffer)
{
	return atomic_load(&lease_buffers((struct lease_header *)actor->leases.base)[buffer]);
}

/* What its rank wants back is put aside, and no other. */
static void who_waits_for_its_buffer_gets_that_one(void **state)
{
	uint32_t wait;

	define_with_large(&first, 0, 2);
	define_with_large(&second, 1, 2);
	actor_ready_both(&first, &second);
	/* As the library does. */
	for (uint32_t i = 0; i < 3; i++)
		atomic_store(&lease_buffers((struct lease_header *)first.leases.base)[i],
			     GRADIENT_BUFFER_PUSHED);
	actor_send_push_at(&first, 0, 0, 0);
	actor_send_push_at(&first, 2, 1, 0);
	actor_send_push_at(&first, 1, 2, 0);
	wait = actor_send_buffer_wait(&first, 1, 1);
	assert_int_equal(actor_await(&first, wait, 0)->status, 0);
	assert_int_equal(buffer_state(&first, 2), GRADIENT_BUFFER_FREE);
	assert_int_equal(buffer_state(&first, 0), GRADIENT_BUFFER_PUSHED);
	assert_int_equal(buffer_state(&first, 1), GRADIENT_BUFFER_PUSHED);
	/* It is free, and no help for another unit. */
	wait = actor_send_buffer_wait(&first, 0, 2);
	assert_int_equal(actor_await(&first, wait, 0)->status, 0);
	assert_int_equal(buffer_state(&first, 0), GRADIENT_BUFFER_FREE);
	assert_int_equal(buffer_state(&first, 1), GRADIENT_BUFFER_PUSHED);
}

/* A rank that holds one buffer and wants another one is not told of that which it holds, again and again. */
static void what_its_rank_holds_ends_no_wait(void **state)
{
	const struct job *job = start_two();

	/* As the library does. */
	atomic_store(&lease_buffers((struct lease_header *)first.leases.base)[0], GRADIENT_BUFFER_PUSHED);
	push(&first, 0, 1.0f);
	assert_int_equal(actor_await(&first, actor_send_buffer_wait(&first, 0, 1), 0)->status, 0);
	/* It was put aside for that. */
	assert_int_equal(buffer_state(&first, 0), GRADIENT_BUFFER_FREE);
	assert_int_equal(queue_is_empty(&job->gradients->sums[0].waiting), 0);
	/* And who has seen more than there are is answered at once. */
	push(&first, 0, 1.0f);
	assert_int_equal(actor_await(&first, actor_send_buffer_wait(&first, 0, 2), 0)->status, 0);
}

static void a_wait_for_no_unit_is_refused(void **state)
{
	start_two();
	assert_int_equal(actor_await(&first, actor_send_buffer_wait(&first, 2, 1), 0)->status, -EINVAL);
	assert_int_equal(actor_await(&first, actor_send_buffer_wait(&first, UINT32_MAX, 1), 0)->status,
			 -EINVAL);
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(gradients_on_their_way_aside_survive_a_failed_step),
		TEST(buffers_beyond_the_plan_are_given_back_when_nobody_trains),
		TEST(there_are_none_beyond_the_plan_where_the_node_has_no_room),
		TEST(it_is_pushed_from_a_buffer_of_its_own_alone),
		TEST(who_waits_for_its_buffer_gets_that_one),
		TEST(what_its_rank_holds_ends_no_wait),
		TEST(a_wait_for_no_unit_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
