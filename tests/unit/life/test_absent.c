/* Tensors of a push that have no gradient: what a step makes of them follows from the pushes that it has
 * summed alone, whatever became of others, and wherever they waited. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/gradients/own.h"
#include "daemon/residency/residency.h"
#include "daemon/update/early.h"
#include "daemon/update/own.h"
#include "tests/unit/scene_test.h"

/* Without padding, so that a unit's gradients are one array. */
#define TENSORS 3
#define ELEMENTS 256
#define A 1u
#define B 2u
#define C 4u

static struct actor first, second;

static struct unit *unit_of(uint32_t unit)
{
	return &scene_job(NULL)->catalog.units[unit];
}

static void define(struct actor *actor, const char *unit)
{
	char names[TENSORS][16];
	struct actor_tensor tensors[TENSORS];

	for (unsigned i = 0; i < TENSORS; i++) {
		snprintf(names[i], sizeof(names[i]), "%s%u", unit, i);
		tensors[i] = (struct actor_tensor){ names[i], FORMAT_FP32, INITIALIZE_ONES, ELEMENTS, false };
	}
	assert_int_equal(actor_define(actor, unit, tensors, TENSORS), 0);
}

static void enter(struct actor *actor, uint32_t rank, uint32_t world_size, struct actor_job job)
{
	job.rank = rank;
	job.world_size = world_size;
	assert_int_equal(actor_join(&scene, actor, &job), 0);
	define(actor, "u");
	define(actor, "w");
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

/* Of unit 0, but for these tensors. */
static uint32_t send_push(struct actor *actor, uint32_t buffer, uint8_t absent, float value)
{
	float *gradients = (float *)(actor->gradients.base + buffer * actor->buffer_bytes);
	uint32_t number;

	for (unsigned i = 0; i < TENSORS * ELEMENTS; i++)
		gradients[i] = absent >> i / ELEMENTS & 1 ? 0 : value;
	actor->absent = &absent;
	actor->absent_bytes = 1;
	number = actor_send_push(actor, 0, buffer);
	actor->absent = NULL;
	return number;
}

static void push(struct actor *actor, uint8_t absent, float value)
{
	assert_int_equal(actor_await(actor, send_push(actor, 0, absent, value), 0)->status, 0);
}

static void step_together(void)
{
	uint32_t steps[] = { actor_send_step(&first, 0.1f), actor_send_step(&second, 0.1f) };

	assert_int_equal(actor_await(&first, steps[0], 0)->status, 0);
	assert_int_equal(actor_await(&second, steps[1], 0)->status, 0);
}

/* By tensor of unit 0. */
static void expect_updates(uint64_t a, uint64_t b, uint64_t c)
{
	const uint64_t expected[TENSORS] = { a, b, c };
	const struct unit *unit = unit_of(0);

	for (unsigned i = 0; i < TENSORS; i++) {
		assert_int_equal(tensor_updates(unit, &unit->tensors[i]), expected[i]);
		assert_false(unit->tensors[i].is_present);
	}
}

static bool has_moved(struct actor *actor, uint32_t tensor)
{
	const float *values = (const float *)actor->window.base;

	assert_int_equal(actor_read(actor, 0, tensor, "parameter", 0, ELEMENTS, scene_job(NULL)->step), 0);
	for (unsigned i = 1; i < ELEMENTS; i++)
		assert_true(values[i] == values[0]);
	return values[0] != 1;
}

static void a_rank_that_has_one_is_enough(void **state)
{
	start_two((struct actor_job){ .stage = 2 });
	send_push(&first, 0, A | B, 1);
	send_push(&second, 0, B | C, 1);
	step_together();
	expect_updates(1, 0, 1);
	assert_true(has_moved(&first, 0) && !has_moved(&first, 1) && has_moved(&first, 2));
	assert_int_equal(unit_of(0)->last_update, 1);
}

static void a_push_without_any_is_no_update(void **state)
{
	start_one((struct actor_job){ .stage = 3, .is_strict = true });
	push(&first, A | B | C, 1);
	assert_int_equal(actor_await(&first, actor_send_push(&first, 1, 0), 0)->status, 0);
	assert_int_equal(actor_take_step(&first), 0);
	expect_updates(0, 0, 0);
	assert_int_equal(unit_of(0)->updates, 0);
	assert_int_equal(unit_of(0)->last_update, 0);
	assert_int_equal(unit_of(1)->updates, 1);
}

/* The first micro-batch, which alone has something, waits for the other rank aside: its buffer is pushed
 * again, without anything. */
static void what_is_put_aside_lacks_what_it_lacked(void **state)
{
	uint32_t wait;

	start_two((struct actor_job){ .stage = 2 });
	for (unsigned i = 0; i < first.buffer_count; i++)
		send_push(&first, i, i == 0 ? B | C : A | B | C, 1);
	wait = actor_send_buffer_wait(&first, 0, first.buffer_count);
	assert_int_equal(actor_await(&first, wait, 0)->status, 0);
	send_push(&first, 0, A | B | C, 1);
	step_together();
	expect_updates(1, 0, 0);
}

static void the_next_step_has_its_own(void **state)
{
	uint32_t steps[2];

	start_two((struct actor_job){ .stage = 2 });
	send_push(&first, 0, B | C, 1);
	steps[0] = actor_send_step(&first, 0.1f);
	send_push(&first, 1, A | C, 1);
	send_push(&second, 0, A | B | C, 1);
	steps[1] = actor_send_step(&second, 0.1f);
	assert_int_equal(actor_await(&first, steps[0], 0)->status, 0);
	assert_int_equal(actor_await(&second, steps[1], 0)->status, 0);
	scene_settle(&scene);
	assert_int_equal(unit_of(0)->tensors[1].missed, 1);
	step_together();
	expect_updates(1, 1, 0);
}

static void nothing_is_left_of_a_step_that_fails(void **state)
{
	start_one((struct actor_job){ .stage = 3, .nonfinite = NONFINITE_REPORT });
	push(&first, B | C, INFINITY);
	assert_int_equal(actor_await(&first, actor_send_step(&first, 0.1f), 0)->status, -EDOM);
	push(&first, A | C, 1);
	assert_int_equal(actor_take_step(&first), 0);
	expect_updates(0, 1, 0);
}

static void nothing_is_left_of_a_step_that_is_skipped(void **state)
{
	start_one((struct actor_job){ .stage = 3, .nonfinite = NONFINITE_SKIP });
	push(&first, B | C, INFINITY);
	assert_int_equal(actor_take_step(&first), 0);
	expect_updates(0, 0, 0);
	push(&first, A | C, 1);
	assert_int_equal(actor_take_step(&first), 0);
	expect_updates(0, 1, 0);
}

static void nothing_is_left_of_an_epoch_that_ends(void **state)
{
	const struct actor_job job = { .stage = 0 };

	start_two(job);
	push(&first, B | C, 1);
	actor_die(&first);
	scene_settle(&scene);
	actor_die(&second);
	scene_settle(&scene);
	start_two(job);
	push(&second, A | C, 1);
	step_together();
	expect_updates(0, 1, 0);
}

/* Its values lie where its gradients did until the step is decided, those of all tensors. */
static void an_early_update_leaves_them_as_well(void **state)
{

	start_one((struct actor_job){ .stage = 3, .optimizer_placement = PLACEMENT_NVME });
	scene_settle(&scene);
	assert_int_equal(actor_begin_step(&first, 0.1f, 1), 0);
	push(&first, B, 1);
	assert_int_equal(actor_await(&first, actor_send_push(&first, 1, 0), 0)->status, 0);
	while (pack_update(scene_job(NULL), unit_of(0)->pack)->early != EARLY_READY)
		scene_wait(&scene);
	assert_int_equal(actor_take_step(&first), 0);
	scene_settle(&scene);
	assert_int_equal(scene_job(NULL)->update->early_updates, 2);
	expect_updates(1, 0, 1);
	assert_true(has_moved(&first, 0) && !has_moved(&first, 1) && has_moved(&first, 2));
}

static void expect_refused(const uint8_t *absent, size_t bytes)
{
	first.absent = absent;
	first.absent_bytes = bytes;
	assert_int_equal(actor_await(&first, actor_send_push(&first, 0, 0), 0)->status, -EINVAL);
	assert_non_null(strstr(actor_message(&first), "unit \"u\" has 3 tensors: as many bits say"));
	first.absent = NULL;
}

static void other_bits_than_those_of_its_tensors_are_refused(void **state)
{
	static const uint8_t absent[] = { A | B | C, 0 }, behind = 8, last = 128;

	start_one((struct actor_job){ .stage = 3 });
	expect_refused(absent, 2);
	expect_refused(&behind, 1);
	expect_refused(&last, 1);
	push(&first, C, 1);
	assert_int_equal(actor_take_step(&first), 0);
	expect_updates(1, 1, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SCENE_TEST(a_rank_that_has_one_is_enough, scene_setup),
		SCENE_TEST(a_push_without_any_is_no_update, scene_setup),
		SCENE_TEST(what_is_put_aside_lacks_what_it_lacked, scene_setup),
		SCENE_TEST(the_next_step_has_its_own, scene_setup),
		SCENE_TEST(nothing_is_left_of_a_step_that_fails, scene_setup),
		SCENE_TEST(nothing_is_left_of_a_step_that_is_skipped, scene_setup),
		SCENE_TEST(nothing_is_left_of_an_epoch_that_ends, scene_setup),
		SCENE_TEST(an_early_update_leaves_them_as_well, scene_setup),
		SCENE_TEST(other_bits_than_those_of_its_tensors_are_refused, scene_setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
