/* The pages of an arena come while its job's values are computed and read: what is updated has its pages,
 * what cannot wait gets them as it touches them, and a job that ends waits for those that are coming. */
#include "daemon/residency/own.h"
#include "daemon/update/own.h"
#include "daemon/update/sweep.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

#define UNITS 14
#define ELEMENTS (UINT64_C(4) << 20) /* a pack each, of 16 MiB of fp32 */
#define UNIT_BYTES (ELEMENTS * sizeof(float))
/* In four pieces: three of 64 MiB, and one of 32. */
#define PACKS_AFTER_TWO_PIECES 8
#define PACKS_AFTER_THREE_PIECES 12

static struct actor rank;
static struct blockade blockade;

static uint64_t pages_here(const struct job *job)
{
	return memory_resident(&job->residency->arena);
}

static uint32_t enter(void)
{
	actor_join_in_host_memory(&scene, &rank, UNITS, ELEMENTS);
	return actor_send_ready(&rank, -1);
}

/* The job has its memory, and the pages of two pieces; until the blockade ends the others do not come. The
 * request of its rank to be ready. */
static uint32_t enter_without_the_last_pages(void)
{
	uint32_t ready = enter();
	struct job *job = scene_job("play");

	blockade_begin_for_pages(&scene, job, &blockade);
	while (job->residency->arena_here < PACKS_AFTER_TWO_PIECES * UNIT_BYTES)
		scene_wait(&scene);
	return ready;
}

static void expect_ones(uint32_t unit)
{
	const float *values;
	const void *address;

	assert_int_equal(actor_gather(&rank, unit, 0, &address), 0);
	values = address;
	for (uint64_t i = 0; i < ELEMENTS; i += ELEMENTS / 64)
		assert_true(values[i] == 1);
	assert_true(values[ELEMENTS - 1] == 1);
	actor_release(&rank, unit);
}

static void expect_whole(const struct job *job)
{
	assert_int_equal(job->residency->arena_here, UNITS * UNIT_BYTES);
	assert_int_equal(pages_here(job), UNITS * UNIT_BYTES);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		expect_ones(unit);
}

/* And what of its first values has pages is written; nothing else is under way. */
static uint32_t enter_and_write_first_values(void)
{
	uint32_t ready = enter_without_the_last_pages();
	struct job *job = scene_job("play");

	for (uint32_t pack = 0; pack < PACKS_AFTER_TWO_PIECES; pack++)
		while (residency_state(job, pack) != DIRECTORY_RESIDENT || residency_is_in_use(job, pack))
			scene_wait(&scene);
	while (job->update->sweep && job->update->sweep->running > 0)
		scene_wait(&scene);
	assert_non_null(job->update->sweep);
	return ready;
}

static void first_values_wait_for_their_pages_alone(void **state)
{
	uint32_t ready = enter_and_write_first_values();
	struct job *job = scene_job("play");

	for (uint32_t pack = PACKS_AFTER_TWO_PIECES; pack < UNITS; pack++)
		assert_true(residency_is_due(job, pack));
	assert_int_equal(pages_here(job), PACKS_AFTER_TWO_PIECES * UNIT_BYTES);
	assert_null(actor_find(&rank, ready, 0));
	blockade_end(&blockade);
	assert_int_equal(actor_finish_ready(&rank, ready), 0);
	expect_whole(job);
}

static void a_job_that_ends_waits_for_pages_that_are_coming(void **state)
{
	uint64_t before = budget_host_used(scene.node);

	enter_and_write_first_values();
	actor_die(&rank);
	event_base_loop(scene.loop, EVLOOP_NONBLOCK);
	assert_false(node_has_settled(scene.node, geteuid()));
	blockade_end(&blockade);
	while (!node_has_settled(scene.node, geteuid()))
		scene_wait(&scene);
	scene_await_disposals(&scene);
	assert_int_equal(budget_host_used(scene.node), before);
}

static void a_broken_job_gets_no_more_pages(void **state)
{
	struct job *job;

	enter_and_write_first_values();
	job = scene_job("play");
	job_break(job, NULL, "a test has broken it");
	blockade_end(&blockade);
	while (!cache_is_quiet(job))
		scene_wait(&scene);
	assert_int_equal(pages_here(job), PACKS_AFTER_THREE_PIECES * UNIT_BYTES);
	assert_false(arena_is_coming(job));
}

/* A job that is back has its ranks train at once: they read what they want, pages or not. */
static void what_is_gathered_of_a_job_that_is_back_waits_for_no_pages(void **state)
{
	struct job *job;
	uint32_t ready;

	assert_int_equal(actor_finish_ready(&rank, enter()), 0);
	job = scene_job("play");
	actor_leave_released(&scene, &rank);
	ready = enter_without_the_last_pages();
	assert_int_equal(actor_finish_ready(&rank, ready), 0);
	expect_ones(UNITS - 1);
	for (uint32_t pack = 0; pack + 1 < PACKS_AFTER_TWO_PIECES; pack++)
		while (residency_state(job, pack) != DIRECTORY_RESIDENT)
			scene_wait(&scene);
	assert_int_equal(residency_state(job, UNITS - 2), DIRECTORY_ABSENT);
	blockade_end(&blockade);
	scene_settle(&scene);
	expect_whole(job);
}

static int setup(void **state)
{
	return scene_setup_with(
		&(struct scene_options){ .host_budget = 2 * GIB, .capacity = UINT64_C(3) * GIB });
}

#define TEST(name) SCENE_TEST(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(first_values_wait_for_their_pages_alone),
		TEST(a_job_that_ends_waits_for_pages_that_are_coming),
		TEST(a_broken_job_gets_no_more_pages),
		TEST(what_is_gathered_of_a_job_that_is_back_waits_for_no_pages),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
