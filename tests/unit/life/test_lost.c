/* Jobs that could not come back: which of them, what they say, and when they are tried again. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/model/job.h"
#include "daemon/recovery/recovery.h"
#include "tests/unit/scene_test.h"

#define ELEMENTS 1000
/* Their definitions take more than an extent. */
#define MANY 9000

static struct actor actor;

/* ---- Jobs ---- */

static int open_job(const char *name, uint32_t mode)
{
	assert_int_equal(actor_enter(&scene, &actor), 0);
	return actor_open(&actor, &(struct actor_job){ .name = name, .stage = 3, .mode = mode });
}

static void end(void)
{
	actor_die(&actor);
	scene_settle(&scene);
	scene_await_disposals(&scene);
}

/* What it takes of the path. */
static uint64_t leave_job(const char *name, unsigned units)
{
	uint64_t before = scene.node->paths[0].used;

	assert_int_equal(open_job(name, MODE_CREATE), 0);
	assert_int_equal(actor_define_units(&actor, units, ELEMENTS / units ?: 1), 0);
	assert_int_equal(actor_ready(&actor), 0);
	end();
	return scene.node->paths[0].used - before;
}

static void drop(struct job *job)
{
	job_drop(job);
	scene_settle(&scene);
	scene_await_disposals(&scene);
}

static void come_back(const char *name)
{
	life_step(scene_job(name), LIFE_REOPEN);
	scene_settle(&scene);
}

static void expect_lost(const char *name, const char *reason)
{
	const struct job *job = scene_job(name);

	assert_non_null(job);
	assert_true(job_is_lost(job));
	if (!strstr(job->epoch.reason, reason))
		fail_msg("it says: %s", job->epoch.reason);
}

static void expect_back(const char *name)
{
	assert_non_null(scene_job(name));
	assert_int_equal(scene_job(name)->state, JOB_RELEASED);
}

/* As it is told. */
static const Tierd__Wire__JobEntry *ask(const char *name)
{
	Tierd__Wire__JobsRead read = TIERD__WIRE__JOBS_READ__INIT;
	const Tierd__Wire__Reply *reply;

	assert_int_equal(actor_enter(&scene, &actor), 0);
	assert_int_equal(actor_ask(&actor, WIRE_REQUEST(JOBS_READ, jobs_read, &read), &reply), 0);
	for (size_t i = 0; i < reply->jobs->n_jobs; i++)
		if (strcmp(reply->jobs->jobs[i]->name, name) == 0)
			return reply->jobs->jobs[i];
	return NULL;
}

/* ---- Tests ---- */

static void what_is_told_of_one_is_what_its_record_says(void **state)
{
	uint64_t bytes = leave_job("play", 2);
	const Tierd__Wire__JobEntry *told;

	scene.node->paths[0].capacity = bytes - 1;
	come_back("play");
	told = ask("play");
	assert_true(told->is_lost);
	assert_true(told->is_record_read);
	assert_int_equal(told->stage, 3);
	assert_int_equal(told->world_size, 1);
	assert_int_equal(told->units, 2);
	assert_int_equal(told->parameters, 2 * (ELEMENTS / 2));
	assert_string_equal(told->optimizer, "adamw");
	assert_non_null(strstr(told->remedy, "raise the size of its paths in tierd.conf"));
	end();
	scene.node->paths[0].capacity = bytes;
	come_back("play");
	told = ask("play");
	assert_false(told->is_lost);
	assert_string_equal(told->remedy, "");
	end();
}

/* Its file is there, and shorter: no room mends that. */
static void of_one_that_was_cut_off_nothing_is_known(void **state)
{
	const Tierd__Wire__JobEntry *told;
	char path[PATH_MAX];

	leave_job("play", 2);
	snprintf(path, sizeof(path), "%s/tierd/%s", scene.folder, scene_job("play")->location.file);
	assert_int_equal(truncate(path, 8 << 20), 0);
	come_back("play");
	expect_lost("play", "was cut off");
	told = ask("play");
	assert_true(told->is_lost);
	assert_false(told->is_record_read);
	assert_int_equal(told->stage, 0);
	assert_string_equal(told->optimizer, "");
	assert_non_null(strstr(told->remedy, "put back a copy of its files"));
	assert_non_null(strstr(told->remedy, "open it again"));
	end();
}

static void a_job_without_room_on_nvme_comes_back_when_there_is_some(void **state)
{
	uint64_t bytes = leave_job("play", 2) + leave_job("other", 2);

	scene.node->paths[0].capacity = bytes - 1;
	come_back("play");
	expect_lost("play", "it needs");
	assert_int_equal(open_job("play", MODE_CREATE), -EEXIST);
	end();
	drop(scene_job("other"));
	expect_back("play");
}

static void a_job_without_host_memory_comes_back_when_there_is_some(void **state)
{
	leave_job("other", MANY);
	leave_job("play", 2);
	/* What they take when nobody trains them. */
	come_back("other");
	come_back("play");
	scene_await_disposals(&scene);
	scene.node->settings.host_budget = budget_host_used(scene.node) - 1;
	come_back("play");
	expect_lost("play", "of host memory");
	drop(scene_job("other"));
	expect_back("play");
}

static void one_that_still_has_no_room_is_left_alone(void **state)
{
	uint64_t bytes = leave_job("play", 2), small = leave_job("small", 2);
	uint64_t large = leave_job("large", 20);

	scene.node->paths[0].capacity = bytes + small + large - 1;
	come_back("play");
	come_back("small");
	expect_back("small");
	expect_lost("play", "it needs");
	uint64_t opened = scene.node->jobs.created;

	for (unsigned i = 0; i < 3; i++) {
		job_settle_all(scene.node);
		event_base_loop(scene.loop, EVLOOP_NONBLOCK);
		assert_true(!recovery_is_under_way(scene.node));
	}
	assert_int_equal(scene.node->jobs.created, opened);
	drop(scene_job("large"));
	expect_back("play");
}

static void who_opens_one_has_it_tried_again(void **state)
{
	uint64_t capacity = scene.node->paths[0].capacity;

	leave_job("play", 2);
	scene.node->paths[0].capacity = 1;
	come_back("play");
	expect_lost("play", "it needs");
	assert_int_equal(open_job("play", MODE_RESUME), -EAGAIN);
	assert_int_equal(actor_open(&actor, &(struct actor_job){ .name = "play", .stage = 3 }), -EAGAIN);
	scene_settle(&scene);
	/* In vain; and that is said then. */
	assert_int_equal(actor_open(&actor, &(struct actor_job){ .name = "play", .stage = 3 }), -EIO);
	if (!strstr(actor_message(&actor), "raise the size of its paths in tierd.conf"))
		fail_msg("it says: %s", actor_message(&actor));
	end();
	scene.node->paths[0].capacity = capacity;
	assert_int_equal(open_job("play", MODE_RESUME), -EAGAIN);
	scene_settle(&scene);
	assert_int_equal(actor_open(&actor, &(struct actor_job){ .name = "play", .stage = 3 }), 0);
	end();
}

static void leave_all(void)
{
	QUEUE_FOREACH (link, &scene.node->jobs.live) {
		struct job *job = queue_entry(link, struct job, link);

		life_step(job, LIFE_CLOSE);
	}
	scene_settle(&scene);
	scene_await_disposals(&scene);
}

/* Though its definition takes longer to read. */
static void the_oldest_gets_the_room_that_there_is(void **state)
{
	uint64_t first = leave_job("zebra", MANY);

	leave_job("ape", 2);
	leave_all();
	scene.node->paths[0].capacity = first;
	assert_int_equal(restore_all(scene.node), 0);
	expect_back("zebra");
	expect_lost("ape", "it needs");
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_told_of_one_is_what_its_record_says),
		TEST(of_one_that_was_cut_off_nothing_is_known),
		TEST(a_job_without_room_on_nvme_comes_back_when_there_is_some),
		TEST(a_job_without_host_memory_comes_back_when_there_is_some),
		TEST(one_that_still_has_no_room_is_left_alone),
		TEST(who_opens_one_has_it_tried_again),
		TEST(the_oldest_gets_the_room_that_there_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
