/* What the loop does for a step grows with the units and the ranks, and not with their squares: the other
 * jobs of the node wait for it. Time on this thread's processor is compared with itself, for eight times as
 * much of one thing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <cmocka.h>

#include "common/log.h"
#include "tests/unit/daemon_support.h"

#define TIMES 8
/* Eight would be linear, 64 the square. */
#define MAX_RATIO 20.0
#define TRIES 3

static struct scene scene;
static struct actor *actors;
static uint32_t *numbers;
static uint32_t rank_count, unit_count;

static double processor_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void open_rank(uint32_t rank, uint32_t stage)
{
	const struct actor_job job = { .rank = rank, .world_size = rank_count, .stage = stage };
	struct actor *actor = &actors[rank];

	assert_int_equal(actor_enter(&scene, actor), 0);
	assert_int_equal(actor_open(actor, &job), 0);
	assert_int_equal(actor_define_units(actor, unit_count, 256), 0);
}

static void start(uint32_t ranks, uint32_t units, uint32_t stage)
{
	const struct scene_options options = { .host_budget = GIB, .is_without_nvme = true };

	rank_count = ranks;
	unit_count = units;
	actors = calloc(ranks, sizeof(*actors));
	numbers = calloc(ranks, sizeof(*numbers));
	assert_true(actors && numbers);
	assert_int_equal(scene_open(&options, &scene), 0);
	for (uint32_t rank = 0; rank < ranks; rank++)
		open_rank(rank, stage);
	for (uint32_t rank = 0; rank < ranks; rank++)
		numbers[rank] = actor_send_ready(&actors[rank], -1);
	for (uint32_t rank = 0; rank < ranks; rank++)
		assert_int_equal(actor_finish_ready(&actors[rank], numbers[rank]), 0);
}

static void end(void)
{
	for (uint32_t rank = 0; rank < rank_count; rank++)
		actor_die(&actors[rank]);
	scene_close(&scene);
	free(actors);
	free(numbers);
	actors = NULL;
	numbers = NULL;
}

static void await_all(void)
{
	for (uint32_t rank = 0; rank < rank_count; rank++)
		assert_int_equal(actor_await(&actors[rank], numbers[rank], 0)->status, 0);
}

/* Returns what the handlers took. */
static double push_all(void)
{
	double seconds = 0.0;

	for (uint32_t unit = 0; unit < unit_count; unit++) {
		double start = processor_seconds();

		for (uint32_t rank = 0; rank < rank_count; rank++)
			numbers[rank] = actor_send_push(&actors[rank], unit, 0);
		seconds += processor_seconds() - start;
		await_all();
	}
	return seconds;
}

static double take_step(void)
{
	double start = processor_seconds();

	for (uint32_t rank = 0; rank < rank_count; rank++)
		numbers[rank] = actor_send_step(&actors[rank], 0.1f);
	await_all();
	return processor_seconds() - start;
}

static double least(double (*measure)(void), bool with_pushes)
{
	double seconds = 0.0;

	for (unsigned try = 0; try < TRIES; try++) {
		if (with_pushes)
			push_all();
		double now = measure();

		if (!with_pushes)
			take_step();
		seconds = try == 0 || now < seconds ? now : seconds;
	}
	return seconds;
}

static void check_ratio(double few, double many)
{
	print_message("%.6f s, and %.6f s for %d times as many: %.1f\n", few, many, TIMES, many / few);
	assert_true(many / few < MAX_RATIO);
}

static void a_step_is_linear_in_the_units(void **state)
{
	double few, many;

	start(4, 5000, 1);
	few = least(take_step, true);
	end();
	start(4, 5000 * TIMES, 1);
	many = least(take_step, true);
	end();
	check_ratio(few, many);
}

static void a_push_takes_as_long_with_many_ranks(void **state)
{
	struct rlimit files;
	double few, many;

	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
	if (files.rlim_max < 2048) {
		print_message("skipped: 256 ranks need 2048 descriptors\n");
		skip();
	}
	start(32, 10, 2);
	few = least(push_all, false);
	end();
	start(32 * TIMES, 10, 2);
	many = least(push_all, false);
	end();
	check_ratio(few, many);
}

static int setup(void **state)
{
	log_open(LOG_LEVEL_ERROR);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_step_is_linear_in_the_units),
		cmocka_unit_test(a_push_takes_as_long_with_many_ranks),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
