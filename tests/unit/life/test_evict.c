/* Units that a user wants to leave host memory, of a job that has no plan yet. */
#include <errno.h>
#include <string.h>

#include "tests/unit/scene_test.h"

static struct actor rank, user;

static uint32_t send_evict(struct actor *actor)
{
	Tierd__Wire__JobEvict evict = TIERD__WIRE__JOB_EVICT__INIT;

	evict.name = (char *)"play";
	return actor_send(actor, WIRE_REQUEST(JOB_EVICT, job_evict, &evict));
}

static void who_evicts_while_it_is_planned_is_told_to_try_again(void **state)
{
	const struct actor_tensor tensor = { "w", FORMAT_BF16, INITIALIZE_ONES, 1000, false };
	static struct blockade blockade;
	uint32_t ready;

	assert_int_equal(actor_enter(&scene, &user), 0);
	assert_int_equal(actor_join(&scene, &rank, &(struct actor_job){ .stage = 3 }), 0);
	assert_int_equal(actor_define(&rank, "unit", &tensor, 1), 0);
	assert_int_equal(actor_await(&user, send_evict(&user), 0)->status, -EBUSY);
	assert_non_null(strstr(actor_message(&user), "when it has a state"));
	blockade_begin(&scene, scene.node->slow_workers, &blockade);
	ready = actor_send_ready(&rank, -1);
	while (scene_job(NULL)->state != JOB_PLANNING)
		scene_wait(&scene);
	assert_int_equal(actor_await(&user, send_evict(&user), 0)->status, -EAGAIN);
	assert_non_null(strstr(actor_message(&user), "is planning; try again"));
	blockade_end(&blockade);
	assert_int_equal(actor_finish_ready(&rank, ready), 0);
	assert_int_equal(actor_await(&user, send_evict(&user), 0)->status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		SCENE_TEST(who_evicts_while_it_is_planned_is_told_to_try_again, scene_setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
