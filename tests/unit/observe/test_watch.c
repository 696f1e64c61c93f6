/* Who watches hears what happens; who does not read loses events, and hears how many. */
#include <errno.h>
#include <string.h>

#include "daemon/model/job.h"
#include "daemon/telemetry/own.h"
#include "tests/unit/scene_test.h"

static struct actor trainer, watcher;

struct wish {
	const char *job;
	bool has_owner, steps;
	uint32_t owner;
};

static int watch(struct actor *actor, const struct wish *wish)
{
	Tierd__Wire__Watch body = TIERD__WIRE__WATCH__INIT;

	body.job = (char *)(wish->job ? wish->job : "");
	body.has_owner = wish->has_owner;
	body.owner = wish->owner;
	body.steps = wish->steps;
	return actor_ask(actor, WIRE_REQUEST(WATCH, watch, &body), NULL);
}

static void begin(void)
{
	assert_int_equal(actor_enter(&scene, &trainer), 0);
	/* When a step is durable is not ordered with the rest. */
	assert_int_equal(actor_open(&trainer, &(struct actor_job){ .stage = 3,
								   .parameter_placement = PLACEMENT_HOST,
								   .optimizer_placement = PLACEMENT_HOST,
								   .durability = DURABILITY_NONE }),
			 0);
	assert_int_equal(actor_define_units(&trainer, 1, 1000), 0);
	assert_int_equal(actor_ready(&trainer), 0);
}

static void train(unsigned steps)
{
	for (unsigned i = 0; i < steps; i++) {
		actor_send_push(&trainer, 0, 0);
		assert_int_equal(actor_take_step(&trainer), 0);
	}
}

static void expect(const struct actor *actor, const char *const *events)
{
	unsigned count = 0;

	for (; events[count]; count++) {
		assert_true(count < actor->happened_count);
		assert_string_equal(actor->happened[count].event, events[count]);
	}
	assert_int_equal(actor->happened_count, count);
}

static void a_watcher_hears_what_happens(void **state)
{
	static const char *const events[] = { "opened",	 "attached", "initialized", "ready", "applied",
					      "applied", "lost",     "epoch-ended", NULL };

	assert_int_equal(watch(&watcher, &(struct wish){ .steps = true }), 0);
	begin();
	train(2);
	actor_die(&trainer);
	expect(&watcher, events);
	assert_string_equal(watcher.happened[5].job, "play");
	assert_int_equal(watcher.happened[5].step, 2);
}

static void steps_are_for_who_asks_for_them_and_the_last_wish_counts(void **state)
{
	assert_int_equal(watch(&watcher, &(struct wish){ .steps = true }), 0);
	assert_int_equal(watch(&watcher, &(struct wish){ .job = "play" }), 0);
	begin();
	watcher.happened_count = 0;
	train(3);
	assert_int_equal(watcher.happened_count, 0);
}

static void another_job_or_owner_is_not_heard(void **state)
{
	assert_int_equal(watch(&watcher, &(struct wish){ .job = "pla" }), 0);
	begin();
	assert_int_equal(watch(&watcher, &(struct wish){ .job = "play", .has_owner = true, .owner = 4711 }),
			 0);
	actor_die(&trainer);
	assert_int_equal(watcher.happened_count, 0);
}

static void a_watcher_that_does_not_read_hears_how_much_it_has_lost(void **state)
{
	begin();
	assert_int_equal(watch(&watcher, &(struct wish){ .steps = true }), 0);
	watcher.is_slow = true;
	train(5);
	assert_int_equal(watcher.happened_count, 0);
	assert_int_equal(watcher.lost_count, 0);
	/* Not yet: it has read only a little. */
	client_catch_up(watcher.client);
	assert_int_equal(watcher.lost_count, 0);
	watcher.is_slow = false;
	client_catch_up(watcher.client);
	assert_int_equal(watcher.lost_count, 5);
	client_catch_up(watcher.client);
	assert_int_equal(watcher.lost_count, 5);
	train(1);
	assert_int_equal(watcher.happened_count, 1);
	/* Or with the next event. */
	watcher.is_slow = true;
	train(2);
	watcher.is_slow = false;
	train(1);
	assert_int_equal(watcher.lost_count, 7);
	assert_int_equal(watcher.happened_count, 2);
}

static void a_watcher_may_be_a_trainer_and_may_go_at_any_time(void **state)
{
	begin();
	assert_int_equal(watch(&trainer, &(struct wish){ .steps = true }), 0);
	assert_int_equal(watch(&watcher, &(struct wish){ .steps = true }), 0);
	train(1);
	assert_int_equal(trainer.happened_count, 1);
	actor_die(&watcher);
	train(1);
	assert_int_equal(trainer.happened_count, 2);
	actor_die(&trainer);
	assert_true(queue_is_empty(&scene.node->telemetry->watches));
}

static void a_name_that_no_job_can_have_is_refused(void **state)
{
	char name[200];

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(watch(&watcher, &(struct wish){ .job = name }), -EINVAL);
	assert_true(queue_is_empty(&scene.node->telemetry->watches));
}

static int setup(void **state)
{
	return scene_setup(state) || actor_enter(&scene, &watcher);
}

#define TEST(name) SCENE_TEST(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_watcher_hears_what_happens),
		TEST(steps_are_for_who_asks_for_them_and_the_last_wish_counts),
		TEST(another_job_or_owner_is_not_heard),
		TEST(a_watcher_that_does_not_read_hears_how_much_it_has_lost),
		TEST(a_watcher_may_be_a_trainer_and_may_go_at_any_time),
		TEST(a_name_that_no_job_can_have_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
