/* Packs that wait for slots get them as soon as there are some; those that somebody waits for are updated
 * first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "daemon/sweep.h"
#include "tests/unit/scene_test.h"

static struct actor actor;

static void slots_that_become_free_together_are_filled_together(void **state)
{
	struct job *job = actor_play(&scene, &actor);
	uint32_t gathers[PLAY_UNITS], slots = job->slots.count, loading = 0;

	assert_true(slots >= 2 && 2 * slots <= PLAY_UNITS);
	for (uint32_t unit = 0; unit < slots; unit++)
		assert_int_equal(actor_gather(&actor, unit, 0, NULL), 0);
	for (uint32_t unit = slots; unit < 2 * slots; unit++)
		gathers[unit] = actor_send_gather(&actor, unit, 0, false);
	for (uint32_t unit = 0; unit < slots; unit++)
		actor_release(&actor, unit);
	residency_serve(job);
	for (uint32_t pack = 0; pack < PLAY_UNITS; pack++)
		loading += job->residences[pack].state == DIRECTORY_LOADING;
	assert_int_equal(loading, slots);
	for (uint32_t unit = slots; unit < 2 * slots; unit++)
		assert_int_equal(actor_await(&actor, gathers[unit], 0)->status, 0);
}

static void packs_that_somebody_waits_for_are_updated_first(void **state)
{
	struct job *job = actor_play(&scene, &actor);
	uint32_t gathers[2], step;

	for (uint32_t unit = 0; unit < PLAY_UNITS; unit++)
		assert_int_equal(actor_await(&actor, actor_send_push(&actor, unit, 0), 0)->status, 0);
	step = actor_send_step(&actor, 0.1f);
	/* Before the step is decided, and while it is applied; in their order they would be the last. */
	gathers[0] = actor_send_gather(&actor, PLAY_UNITS - 1, 1, false);
	while (!job->sweep)
		scene_wait(&scene);
	assert_int_equal(job->residences[PLAY_UNITS - 2].sweep, SWEEP_WAITING);
	gathers[1] = actor_send_gather(&actor, PLAY_UNITS - 2, 1, false);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(actor_await(&actor, gathers[i], 0)->status, 0);
		assert_non_null(job->sweep);
		assert_true(job->sweep->packs_left > 0);
	}
	assert_int_equal(actor_await(&actor, step, 0)->status, 0);
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(slots_that_become_free_together_are_filled_together),
		TEST(packs_that_somebody_waits_for_are_updated_first),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
