/* A job that asks for another turn in each of its turns, by a mistake, costs a processor: it keeps nobody
 * from being served, and it is told. */
#include <unistd.h>

#include "common/clock.h"
#include "daemon/life/own.h"
#include "daemon/model/job.h"
#include "daemon/gradients/spill.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

/* So many are not told yet, and so many are. */
#define FEW_TURNS 50000
#define MANY_TURNS 1000000
/* Nobody is kept waiting for so long. */
#define PATIENCE_NS UINT64_C(60000000000)

/* Of the job that spins. */
static struct {
	const struct job *job;
	bool (*is_over)(void);
	uint64_t turns, began_ns;
} spin;

void __real_spill_serve(struct job *job);
void __wrap_spill_serve(struct job *job);

/* What each turn does first. */
void __wrap_spill_serve(struct job *job)
{
	__real_spill_serve(job);
	if (job != spin.job)
		return;
	spin.turns++;
	if (!spin.is_over())
		job_settle(job);
}

static struct actor spinner, other;
static uint32_t request;

static struct job *start(struct actor *actor, const char *name)
{
	const struct actor_job options = { .name = name, .stage = 3, .host_budget = 64 * MIB };

	assert_int_equal(actor_enter(&scene, actor), 0);
	assert_int_equal(actor_open(actor, &options), 0);
	assert_int_equal(actor_define_units(actor, 1, 1000), 0);
	assert_int_equal(actor_ready(actor), 0);
	return scene_job(name);
}

static bool has_lasted(void)
{
	return clock_now_ns() - spin.began_ns > PATIENCE_NS;
}

static bool is_answered(void)
{
	return actor_find(&other, request, 0) || has_lasted();
}

static bool has_few_turns(void)
{
	return spin.turns == FEW_TURNS;
}

static bool has_many_turns(void)
{
	return spin.turns == MANY_TURNS;
}

static int setup(void **state)
{
	spin.job = NULL;
	return scene_setup_with(&(struct scene_options){ .is_without_nvme = true });
}

/* Its step takes workers, whose descriptor the loop has to look at. */
static void others_are_served_between_two_turns(void **state)
{
	struct job *job = start(&spinner, "spinner");

	start(&other, "other");
	scene_settle(&scene);
	actor_fill(&other, FORMAT_BF16, 1000, 1.0f);
	assert_int_equal(actor_await(&other, actor_send_push(&other, 0, 0), 0)->status, 0);
	request = actor_send_step(&other, 0.1f);
	spin = (typeof(spin)){ .job = job, .is_over = is_answered, .began_ns = clock_now_ns() };
	job_settle(job);
	assert_int_equal(actor_await(&other, request, 0)->status, 0);
	assert_true(spin.turns > 1 && !has_lasted());
	scene.node->life->mistakes = 0;
}

static void spin_for(struct job *job, bool (*is_over)(void))
{
	spin = (typeof(spin)){ .job = job, .is_over = is_over };
	job_settle(job);
	event_base_loop(scene.loop, EVLOOP_NONBLOCK);
}

static void turns_that_follow_each_other_for_ever_are_told(void **state)
{
	struct job *job = start(&spinner, "spinner");

	scene_settle(&scene);
	spin_for(job, has_few_turns);
	assert_int_equal(scene.node->life->mistakes, 0);
	spin_for(job, has_many_turns);
	assert_int_equal(scene.node->life->mistakes, 1);
	scene.node->life->mistakes = 0;
}

/* However many they are. */
static void turns_that_come_from_outside_are_not_told(void **state)
{
	struct job *job = start(&spinner, "spinner");

	scene_settle(&scene);
	for (unsigned i = 0; i < 4 * FEW_TURNS; i++) {
		job_settle(job);
		event_base_loop(scene.loop, EVLOOP_NONBLOCK);
	}
	assert_int_equal(scene.node->life->mistakes, 0);
}

#define TEST(name) SCENE_TEST(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(others_are_served_between_two_turns),
		TEST(turns_that_follow_each_other_for_ever_are_told),
		TEST(turns_that_come_from_outside_are_not_told),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
