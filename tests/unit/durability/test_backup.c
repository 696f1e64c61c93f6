/* Backups: what a commit takes of host memory stands still until it is written, whatever the next step does.
 */

#include "daemon/durability/durable.h"
#include "daemon/model/job.h"
#include "daemon/residency/residency.h"
#include "daemon/update/own.h"
#include "daemon/update/update.h"
#include "tests/unit/scene_test.h"

/* Packs of their own; so many that some have not even begun to be written when the record is. */
#define UNITS 12
#define ELEMENTS (UINT64_C(1) << 20)

static struct actor actor;

static struct job *start(void)
{
	struct job *job;

	assert_int_equal(actor_join(&scene, &actor,
				    &(struct actor_job){ .stage = 2,
							 .parameter_placement = PLACEMENT_HOST,
							 .optimizer_placement = PLACEMENT_HOST,
							 .durability = DURABILITY_STEP }),
			 0);
	assert_int_equal(actor_define_units(&actor, UNITS, ELEMENTS), 0);
	assert_int_equal(actor_ready(&actor), 0);
	job = scene_job(NULL);
	/* The first commit. */
	while (!durable_is_quiet(job) || durable_is_behind(job))
		scene_wait(&scene);
	return job;
}

static uint32_t send_pushed_step(void)
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		assert_int_equal(actor_await(&actor, actor_send_push(&actor, unit, 0), 0)->status, 0);
	return actor_send_step(&actor, 0.1f);
}

static unsigned count_awaiting(const struct job *job)
{
	unsigned count = 0;

	for (uint32_t pack = 0; pack < UNITS; pack++)
		count += update_awaits_backup(job, pack);
	return count;
}

static void expect_no_update_of_what_awaits_its_backup(const struct job *job)
{
	for (uint32_t pack = 0; pack < UNITS; pack++)
		assert_false(update_awaits_backup(job, pack) && update_begun_step(job, pack) == 2);
}

static void a_pack_is_written_before_the_next_step_updates_it(void **state)
{
	struct job *job = start();
	uint32_t steps[2];

	actor_fill(&actor, FORMAT_BF16, ELEMENTS, 1.0f);
	scene_hear_nothing_of_devices(&scene);
	steps[0] = send_pushed_step();
	assert_int_equal(actor_await(&actor, steps[0], 0)->status, 0);
	steps[1] = send_pushed_step();
	scene_hear_of_devices(&scene);
	/* Until the record is written, and the next step may be decided. */
	while (durable_holds(job))
		scene_wait(&scene);
	scene_hear_nothing_of_devices(&scene);
	assert_true(count_awaiting(job) > 0);
	while (!job->update->sweep)
		scene_wait(&scene);
	for (unsigned turn = 0; turn < 10; turn++) {
		event_base_loop(scene.loop, EVLOOP_NONBLOCK);
		expect_no_update_of_what_awaits_its_backup(job);
	}
	scene_hear_of_devices(&scene);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(actor_await(&actor, steps[i], 1)->status, 0);
	assert_int_equal(job->step, 2);
}

static int setup(void **state)
{
	return scene_setup_with(&(struct scene_options){ .host_budget = 512 * MIB, .capacity = GIB });
}

#define TEST(name) SCENE_TEST(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_pack_is_written_before_the_next_step_updates_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
