/* A durable job that another one of its name replaces: its files stay until that has a state of its own, and
 * it is back when that never comes. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/model/job.h"
#include "daemon/resources/own.h"
#include "tests/unit/scene_test.h"

#define UNITS 2
#define ELEMENTS 1000

static struct actor first, second;

/* ---- Jobs ---- */

static const struct actor_job created = { .stage = 3 };
static const struct actor_job replacing = { .stage = 3, .mode = MODE_REPLACE };
static const struct actor_job replacing_in_host_memory = { .stage = 3,
							   .mode = MODE_REPLACE,
							   .parameter_placement = PLACEMENT_HOST,
							   .optimizer_placement = PLACEMENT_HOST };

static void begin(struct actor *actor, const struct actor_job *job)
{
	assert_int_equal(actor_join(&scene, actor, job), 0);
	assert_int_equal(actor_define_units(actor, UNITS, ELEMENTS), 0);
}

static void end(struct actor *actor)
{
	actor_die(actor);
	scene_settle(&scene);
	scene_await_disposals(&scene);
}

/* A job that is durable, at rest and of number 1; what it takes of the path. */
static uint64_t leave_job(void)
{
	begin(&first, &created);
	assert_int_equal(actor_ready(&first), 0);
	end(&first);
	return scene.node->paths[0].used;
}

static bool has_file(unsigned number)
{
	char file[64];

	snprintf(file, sizeof(file), "%u/play-%u.store", (unsigned)geteuid(), number);
	return faccessat(scene.node->paths[0].directory_fd, file, F_OK, 0) == 0;
}

static void expect_back(uint64_t used)
{
	const struct job *job = scene_job(NULL);

	assert_non_null(job);
	assert_int_equal(job->number, 1);
	assert_int_equal(job->state, JOB_RELEASED);
	assert_true(has_file(1));
	assert_int_equal(scene.node->paths[0].used, used);
	assert_int_equal(actor_join(&scene, &second, &(struct actor_job){ .stage = 3, .mode = MODE_RESUME }),
			 0);
	assert_int_equal(actor_define_units(&second, UNITS, ELEMENTS), 0);
	assert_int_equal(actor_ready(&second), 0);
}

/* ---- Tests ---- */

static void a_job_with_ranks_is_not_replaced(void **state)
{
	begin(&first, &created);
	assert_int_equal(actor_ready(&first), 0);
	assert_int_equal(actor_join(&scene, &second, &replacing), -EBUSY);
	assert_int_equal(scene_job(NULL)->number, 1);
	assert_int_equal(actor_take_step(&first), 0);
}

static void the_old_files_stay_until_the_new_job_has_a_state(void **state)
{
	uint64_t used = leave_job();

	begin(&first, &replacing);
	scene_settle(&scene);
	scene_await_disposals(&scene);
	assert_true(has_file(1));
	assert_int_equal(scene.node->paths[0].used, used);
	assert_int_equal(actor_ready(&first), 0);
	scene_settle(&scene);
	scene_await_disposals(&scene);
	assert_false(has_file(1));
	assert_true(has_file(2));
	assert_int_equal(scene_job(NULL)->number, 2);
	assert_int_equal(scene.node->paths[0].used, used);
}

static void so_they_do_if_it_keeps_its_state_in_host_memory(void **state)
{
	leave_job();
	scene.node->settings.durability = DURABILITY_NONE;
	begin(&first, &replacing_in_host_memory);
	scene_settle(&scene);
	scene_await_disposals(&scene);
	assert_true(has_file(1));
	assert_int_equal(actor_ready(&first), 0);
	scene_settle(&scene);
	scene_await_disposals(&scene);
	assert_false(has_file(1));
	assert_int_equal(scene.node->paths[0].used, 0);
}

static void the_old_job_is_back_when_the_new_one_ends_before(void **state)
{
	uint64_t used = leave_job();

	begin(&first, &replacing);
	end(&first);
	expect_back(used);
}

/* It is not even closed by then. */
static void so_it_is_when_the_new_one_ends_at_once(void **state)
{
	uint64_t used = leave_job();

	assert_int_equal(actor_join(&scene, &first, &replacing), 0);
	end(&first);
	expect_back(used);
}

static void a_plan_that_has_no_room_beside_the_old_job_says_so(void **state)
{
	uint64_t used = leave_job();

	scene.node->paths[0].capacity = 2 * used - 1;
	begin(&first, &replacing);
	assert_int_equal(actor_ready(&first), -ENOSPC);
	if (!strstr(actor_message(&first), "the job that it replaces stays there until") ||
	    !strstr(actor_message(&first), "tierctl drop play"))
		fail_msg("it says: %s", actor_message(&first));
	end(&first);
	expect_back(used);
	assert_int_equal(actor_drop(&second, true), 0);
	end(&second);
	begin(&first, &replacing);
	assert_int_equal(actor_ready(&first), 0);
}

/* Its budget is what the two of them have. */
static void a_user_has_both_of_them_in_his_budget(void **state)
{
	uint64_t used = leave_job();

	begin(&first, &replacing);
	scene_settle(&scene);
	scene_job(NULL)->resources->limits.nvme_maximum = 2 * used - 1;
	assert_int_equal(actor_ready(&first), -ENOSPC);
	if (!strstr(actor_message(&first), "the job that it replaces stays there until"))
		fail_msg("it says: %s", actor_message(&first));
}

static void a_drop_ends_both(void **state)
{
	leave_job();
	begin(&first, &replacing);
	assert_int_equal(actor_enter(&scene, &second), 0);
	assert_int_equal(actor_drop(&second, true), 0);
	scene_settle(&scene);
	scene_await_disposals(&scene);
	assert_null(scene_job(NULL));
	assert_false(has_file(1) || has_file(2));
	assert_int_equal(scene.node->paths[0].used, 0);
}

static void a_rank_that_is_taken_over_replaces_the_same_job(void **state)
{
	uint64_t used = leave_job();
	struct actor_job again = replacing;

	begin(&first, &replacing);
	assert_int_equal(actor_enter(&scene, &second), 0);
	again.is_takeover = true;
	assert_int_equal(actor_open(&second, &again), 0);
	scene_settle(&scene);
	assert_int_equal(scene_job(NULL)->number, 3);
	assert_true(has_file(1));
	end(&first);
	end(&second);
	expect_back(used);
}

/* Until what was to replace it has ended its name is nobody's. */
static void a_name_that_comes_back_is_not_given_away(void **state)
{
	uint64_t used = leave_job();

	begin(&first, &replacing);
	actor_die(&first);
	assert_int_equal(actor_join(&scene, &second, &created), -EAGAIN);
	end(&second);
	expect_back(used);
}

static void the_end_of_the_daemon_leaves_the_old_files_alone(void **state)
{
	char file[400];

	leave_job();
	snprintf(file, sizeof(file), "%s/%u/play-1.store", scene.node->paths[0].folder, (unsigned)geteuid());
	begin(&first, &replacing);
	actor_die(&first);
	node_stop(scene.node, NULL, NULL);
	scene_settle(&scene);
	scene_await_disposals(&scene);
	assert_null(scene_job(NULL));
	assert_true(access(file, F_OK) == 0);
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_job_with_ranks_is_not_replaced),
		TEST(the_old_files_stay_until_the_new_job_has_a_state),
		TEST(so_they_do_if_it_keeps_its_state_in_host_memory),
		TEST(the_old_job_is_back_when_the_new_one_ends_before),
		TEST(so_it_is_when_the_new_one_ends_at_once),
		TEST(a_plan_that_has_no_room_beside_the_old_job_says_so),
		TEST(a_user_has_both_of_them_in_his_budget),
		TEST(a_drop_ends_both),
		TEST(a_rank_that_is_taken_over_replaces_the_same_job),
		TEST(a_name_that_comes_back_is_not_given_away),
		TEST(the_end_of_the_daemon_leaves_the_old_files_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
