/* What clients ask a job's store for, and who asks: it has a bound, and outlives them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/log.h"
#include "daemon/errand.h"
#include "daemon/job.h"
#include "tests/unit/daemon_support.h"

static struct scene scene;
static struct actor rank, first, second;

/* Its turn comes with the loop's. */
static uint32_t send_delete(struct actor *actor, const char *snapshot)
{
	Tierd__Wire__Request request = TIERD__WIRE__REQUEST__INIT;
	Tierd__Wire__SnapshotDelete body = TIERD__WIRE__SNAPSHOT_DELETE__INIT;

	body.name = (char *)"play";
	body.snapshot = (char *)snapshot;
	request.body_case = TIERD__WIRE__REQUEST__BODY_SNAPSHOT_DELETE;
	request.snapshot_delete = &body;
	return actor_send(actor, &request);
}

static unsigned count_errands(const struct job *job)
{
	unsigned count = 0;

	QUEUE_FOREACH (link, &job->errands)
		count++;
	return count;
}

static void play(void)
{
	actor_play(&scene, &rank);
	assert_int_equal(actor_enter(&scene, &first), 0);
	assert_int_equal(actor_enter(&scene, &second), 0);
	scene_settle(&scene);
}

static void requests_of_clients_that_are_gone_have_a_bound(void **state)
{
	const struct answer *answer;
	const struct job *job;
	uint32_t number;

	play();
	job = job_find(scene.node, geteuid(), "play");
	for (unsigned i = 0; i < ERRANDS_MAXIMUM / 2; i++) {
		send_delete(&first, "absent");
		send_delete(&second, "absent");
	}
	assert_int_equal(count_errands(job), ERRANDS_MAXIMUM);
	actor_die(&first);
	actor_die(&second);
	assert_int_equal(actor_enter(&scene, &first), 0);
	number = send_delete(&first, "absent");
	answer = actor_find(&first, number, 0);
	assert_non_null(answer);
	assert_int_equal(answer->status, -EBUSY);
	assert_non_null(strstr(actor_message(&first), "256 requests for snapshots of job play wait"));
	assert_int_equal(count_errands(job), ERRANDS_MAXIMUM);
	/* They are worked off, though nobody is there to hear of it. */
	scene_settle(&scene);
	assert_int_equal(count_errands(job), 0);
	number = send_delete(&first, "absent");
	assert_int_equal(actor_await(&first, number, 0)->status, -ENOENT);
}

static int setup(void **state)
{
	log_open(LOG_LEVEL_ERROR);
	return scene_open(&(struct scene_options){ 0 }, &scene);
}

static int teardown(void **state)
{
	actor_die(&first);
	actor_die(&second);
	actor_die(&rank);
	scene_close(&scene);
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(requests_of_clients_that_are_gone_have_a_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
