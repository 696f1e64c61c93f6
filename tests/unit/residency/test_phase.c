/* Phases: an evaluation, or a sample, has an order of gathers of its own, and leaves that of the training as
 * it is. Every unit is a pack, and host memory has room for a few of them. */
#include "common/cleanup.h"
#include "daemon/model/job.h"
#include "daemon/residency/residency.h"
#include "daemon/residency/order.h"
#include "tests/unit/scene_test.h"
#include "tests/unit/test.h"

static struct actor actor;

static const uint32_t forward[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
static const uint32_t backward[] = { 7, 6, 5, 4, 3, 2, 1, 0 };
static const uint32_t evaluation[] = { 6, 3, 5, 1 };

/* As the library does: a gather is noted in the trace. */
static void gather_all(const struct job *job, const uint32_t *units, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		(void)trace_append((struct lease_header *)actor.leases.base, &units[i], 1);
		assert_int_equal(actor_gather(&actor, units[i], job->decided, NULL), 0);
		actor_release(&actor, units[i]);
	}
}

static void evaluate(const struct job *job, const char *training)
{
	assert_int_equal(actor_set_phase(&actor, "eval"), 0);
	gather_all(job, evaluation, ARRAY_LENGTH(evaluation));
	assert_int_equal(actor_set_phase(&actor, training), 0);
}

static void close_step(void)
{
	assert_int_equal(actor_take_step(&actor), 0);
	scene_settle(&scene);
}

static void train(const struct job *job)
{
	gather_all(job, forward, PLAY_UNITS);
	gather_all(job, backward, PLAY_UNITS);
	close_step();
}

/* What the daemon expects from the next gather on. */
static void expect_order(const struct job *job, const uint32_t *units, unsigned count, unsigned ahead)
{
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(order_expected(job->members.ranks[0]->order, ahead + i), units[i]);
}

static void expect_training(const struct job *job)
{
	expect_order(job, forward, PLAY_UNITS, 0);
	expect_order(job, backward, PLAY_UNITS, PLAY_UNITS);
	assert_int_equal(job->members.ranks[0]->order->learned_count, 2 * PLAY_UNITS);
}

static void an_evaluation_between_steps_leaves_the_order_of_training(void **state)
{
	struct job *job = actor_play(&scene, &actor);

	train(job);
	expect_training(job);
	evaluate(job, "train");
	expect_training(job);
	train(job);
	expect_training(job);
}

/* The order of the training phase is known before, and is afterwards. */
static void evaluate_within_a_step(struct job *job, const char *training)
{
	train(job);
	gather_all(job, forward, 5);
	evaluate(job, training);
	expect_order(job, forward + 5, PLAY_UNITS - 5, 0);
	gather_all(job, forward + 5, PLAY_UNITS - 5);
	gather_all(job, backward, PLAY_UNITS);
	close_step();
	expect_training(job);
}

static void an_evaluation_within_a_step_leaves_the_order_of_training(void **state)
{
	struct job *job = actor_play(&scene, &actor);

	evaluate_within_a_step(job, "train");
}

static void a_training_phase_may_have_any_name(void **state)
{
	struct job *job = actor_play(&scene, &actor);

	assert_int_equal(actor_set_phase(&actor, "tune"), 0);
	evaluate_within_a_step(job, "tune");
}

static void an_evaluation_learns_its_own_order(void **state)
{
	struct job *job = actor_play(&scene, &actor);

	train(job);
	evaluate(job, "train");
	train(job);
	assert_int_equal(actor_set_phase(&actor, "eval"), 0);
	expect_order(job, evaluation, ARRAY_LENGTH(evaluation), 0);
	assert_int_equal(job->members.ranks[0]->order->learned_count, ARRAY_LENGTH(evaluation));
	assert_int_equal(actor_set_phase(&actor, "train"), 0);
}

static bool is_loaded(const struct job *job, uint32_t unit)
{
	enum directory_state now = residency_state(job, job->catalog.units[unit].pack);

	return now == DIRECTORY_LOADING || now == DIRECTORY_RESIDENT;
}

/* Nobody gathers: only the change of the phase can have loaded it. */
static void a_change_of_the_phase_prefetches_what_it_begins_with(void **state)
{
	struct job *job = actor_play(&scene, &actor);

	train(job);
	evaluate(job, "train");
	gather_all(job, forward, PLAY_UNITS);
	gather_all(job, backward, PLAY_UNITS);
	close_step();
	assert_false(is_loaded(job, 6));
	assert_int_equal(actor_set_phase(&actor, "eval"), 0);
	assert_true(is_loaded(job, 6));
	scene_settle(&scene);
	gather_all(job, evaluation, ARRAY_LENGTH(evaluation));
	assert_false(is_loaded(job, 0));
	assert_int_equal(actor_set_phase(&actor, "train"), 0);
	assert_true(is_loaded(job, 0));
	scene_settle(&scene);
}

#define TEST(name) SCENE_TEST(name, scene_setup)

/* Without the order nobody knows what comes; with it, some of that is always away. */
static void a_rank_is_asked_to_ring_while_something_is_to_be_loaded(void **state)
{
	struct job *job = actor_play(&scene, &actor);
	const struct lease_header *leases = (const struct lease_header *)actor.leases.base;

	gather_all(job, forward, PLAY_UNITS);
	assert_true(leases->doorbell_at == UINT64_MAX);
	close_step();
	gather_all(job, forward, PLAY_UNITS / 2);
	assert_true(leases->doorbell_at == leases->trace_head + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(an_evaluation_between_steps_leaves_the_order_of_training),
		TEST(an_evaluation_within_a_step_leaves_the_order_of_training),
		TEST(a_training_phase_may_have_any_name),
		TEST(an_evaluation_learns_its_own_order),
		TEST(a_change_of_the_phase_prefetches_what_it_begins_with),
		TEST(a_rank_is_asked_to_ring_while_something_is_to_be_loaded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
