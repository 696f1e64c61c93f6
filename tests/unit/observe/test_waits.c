/* Which ranks the others wait for: for tierd_job_ready, for a push, for a step, and for a shard; what takes
 * long is told once. */
#include <string.h>

#include "daemon/observe/waits.h"
#include "daemon/update/own.h"
#include "tests/unit/scene_test.h"

#define RANKS 3
#define ELEMENTS 1000
/* Longer than what is worth a line. */
#define LONG_NS UINT64_C(11000000000)

static struct actor ranks[RANKS];
static unsigned told;
static char text[1024];

static bool take(enum log_level level, const char *line, const struct log_fields *fields)
{
	if (strstr(line, "others have waited ")) {
		told++;
		snprintf(text, sizeof(text), "%s", line);
	}
	return true;
}

static void expect(enum waits_cause cause, uint32_t count, uint32_t first)
{
	struct waits waits;

	waits_find(scene_job(NULL), &waits);
	assert_int_equal(waits.cause, cause);
	if (cause == WAITS_NOTHING)
		return;
	assert_int_equal(waits.count, count);
	assert_int_equal(waits.ranks[0], first);
	assert_true(waits.since_ns > 0);
}

static void open_rank(uint32_t rank, uint32_t optimizer)
{
	const struct actor_tensor tensor = { "w", FORMAT_FP32, INITIALIZE_ONES, ELEMENTS, false };

	assert_int_equal(
		actor_join(&scene, &ranks[rank],
			   &(struct actor_job){
				   .stage = 2, .rank = rank, .world_size = RANKS, .optimizer = optimizer }),
		0);
	assert_int_equal(actor_define(&ranks[rank], "unit", &tensor, 1), 0);
}

static void open_all(uint32_t optimizer)
{
	uint32_t numbers[RANKS];

	for (uint32_t rank = 0; rank < RANKS; rank++)
		open_rank(rank, optimizer);
	for (uint32_t rank = 0; rank < RANKS; rank++)
		numbers[rank] = actor_send_ready(&ranks[rank], -1);
	for (uint32_t rank = 0; rank < RANKS; rank++)
		assert_int_equal(actor_finish_ready(&ranks[rank], numbers[rank]), 0);
}

static void those_that_are_not_ready_are_waited_for(void **state)
{
	uint32_t numbers[RANKS];

	open_rank(0, OPTIMIZER_ADAMW);
	expect(WAITS_NOTHING, 0, 0);
	numbers[0] = actor_send_ready(&ranks[0], -1);
	expect(WAITS_READY, 2, 1);
	open_rank(2, OPTIMIZER_ADAMW);
	numbers[2] = actor_send_ready(&ranks[2], -1);
	expect(WAITS_READY, 1, 1);
	open_rank(1, OPTIMIZER_ADAMW);
	numbers[1] = actor_send_ready(&ranks[1], -1);
	for (uint32_t rank = 0; rank < RANKS; rank++)
		assert_int_equal(actor_finish_ready(&ranks[rank], numbers[rank]), 0);
	expect(WAITS_NOTHING, 0, 0);
	/* The epoch ends with one: the others have to come again, and then wait for it. */
	actor_die(&ranks[1]);
	expect(WAITS_NOTHING, 0, 0);
	actor_send_ready(&ranks[0], -1);
	expect(WAITS_READY, 2, 1);
}

static void those_that_have_not_closed_the_step_are_waited_for(void **state)
{
	uint32_t numbers[RANKS];

	open_all(OPTIMIZER_ADAMW);
	expect(WAITS_NOTHING, 0, 0);
	numbers[1] = actor_send_step(&ranks[1], 0.1f);
	expect(WAITS_STEP, 2, 0);
	numbers[0] = actor_send_step(&ranks[0], 0.1f);
	expect(WAITS_STEP, 1, 2);
	numbers[2] = actor_send_step(&ranks[2], 0.1f);
	for (uint32_t rank = 0; rank < RANKS; rank++)
		assert_int_equal(actor_await(&ranks[rank], numbers[rank], 0)->status, 0);
	expect(WAITS_NOTHING, 0, 0);
}

/* All its buffers are full of what others have not pushed yet, and nothing can be put aside any more. */
static void those_whose_pushes_are_lacking_are_waited_for(void **state)
{
	struct job *job;
	uint32_t wait = 0;

	open_all(OPTIMIZER_ADAMW);
	job = scene_job(NULL);
	for (uint32_t i = 0; i < ranks[0].buffer_count; i++)
		actor_send_push(&ranks[0], 0, i);
	expect(WAITS_NOTHING, 0, 0);
	for (unsigned i = 0; i < job->options.world_size; i++) {
		assert_int_equal(
			actor_await(&ranks[0], actor_send_buffer_wait(&ranks[0], 0, ranks[0].buffer_count), 0)
				->status,
			0);
		actor_send_push(&ranks[0], 0, 0);
	}
	wait = actor_send_buffer_wait(&ranks[0], 0, ranks[0].buffer_count);
	expect(WAITS_PUSH, 2, 1);
	/* Who closes its step will not push any more: what was pushed is summed. */
	actor_send_step(&ranks[1], 0.1f);
	expect(WAITS_STEP, 1, 2);
	actor_send_step(&ranks[2], 0.1f);
	assert_int_equal(actor_await(&ranks[0], wait, 0)->status, 0);
	expect(WAITS_STEP, 1, 0);
}

static void those_that_own_a_shard_are_waited_for(void **state)
{
	uint32_t numbers[RANKS];

	open_all(OPTIMIZER_NONE);
	for (uint32_t rank = 0; rank < RANKS; rank++)
		actor_send_push(&ranks[rank], 0, 0);
	for (uint32_t rank = 0; rank < RANKS; rank++)
		numbers[rank] = actor_send_step(&ranks[rank], 0.1f);
	for (uint32_t rank = 0; rank < RANKS; rank++)
		assert_non_null(actor_await(&ranks[rank], numbers[rank], 0));
	expect(WAITS_NOTHING, 0, 0);
	assert_int_equal(actor_finish(&ranks[0]), 0);
	expect(WAITS_SHARD, 2, 1);
}

static void what_takes_long_is_told_once(void **state)
{
	uint32_t number;

	open_all(OPTIMIZER_ADAMW);
	number = actor_send_step(&ranks[0], 0.1f);
	scene_settle(&scene);
	waits_check(scene_job(NULL));
	assert_int_equal(told, 0);
	scene_job(NULL)->members.ranks[0]->step->asked_ns -= LONG_NS;
	waits_check(scene_job(NULL));
	waits_check(scene_job(NULL));
	assert_int_equal(told, 1);
	assert_non_null(strstr(text, "others have waited 11 s for rank 1 (pid "));
	assert_non_null(strstr(text, "), rank 2 (pid "));
	assert_non_null(strstr(text, ") to close step 1"));
	for (uint32_t rank = 1; rank < RANKS; rank++)
		actor_send_step(&ranks[rank], 0.1f);
	assert_int_equal(actor_await(&ranks[0], number, 0)->status, 0);
	/* Of the next one, again; one that was sent ahead has waited since the last was decided, and no
	 * longer. */
	actor_send_step(&ranks[0], 0.1f);
	scene_settle(&scene);
	scene_job(NULL)->members.ranks[0]->step->asked_ns -= LONG_NS;
	waits_check(scene_job(NULL));
	assert_int_equal(told, 1);
	scene_job(NULL)->update->decided_ns -= 2 * LONG_NS;
	waits_check(scene_job(NULL));
	assert_int_equal(told, 2);
}

static int setup(void **state)
{
	int r = scene_setup(state);

	told = 0;
	log_open(LOG_LEVEL_INFO);
	log_divert(take);
	return r;
}

static int teardown(void **state)
{
	int r = scene_teardown(state);

	log_divert(NULL);
	return r;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SCENE_TEST(those_that_are_not_ready_are_waited_for, scene_setup),
		SCENE_TEST(those_that_have_not_closed_the_step_are_waited_for, scene_setup),
		SCENE_TEST(those_whose_pushes_are_lacking_are_waited_for, scene_setup),
		SCENE_TEST(those_that_own_a_shard_are_waited_for, scene_setup),
		cmocka_unit_test_setup_teardown(what_takes_long_is_told_once, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
