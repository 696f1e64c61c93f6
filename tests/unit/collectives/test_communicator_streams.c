/* Communicators whose GPUs are slow: what is on the streams, and until when memory is in use. */
#include <errno.h>
#include <string.h>

#include "tests/lib/gpu/script.h"
#include "tests/unit/collectives/communicator_node.h"
#include "tests/unit/test.h"

static const struct node_plan two = { .rank_count = 2, .gpu_of_rank = { 0, 3 } };

static int set_up(void **state)
{
	*state = machine_new();
	return 0;
}

static int tear_down(void **state)
{
	machine_free(*state);
	return 0;
}

static void node_ready(struct node *node, struct machine *machine, const struct node_plan *plan)
{
	machine_reset(machine);
	assert_int_equal(node_new(node, machine, plan), 0);
	nodes_await(node, 1, COMMUNICATOR_READY);
}

static void put(struct trial *trial, struct node *node, uint64_t sequence, enum communicator_kind kind)
{
	trial_new(trial, node, sequence, kind, REDUCE_FP32, 600);
	assert_int_equal(trial_announce(trial, node), 0);
	trial_ask(trial, node);
}

/* Until it is on the streams. */
static void await_put(struct trial *trial, struct node *node)
{
	while (trial->asked[0].after == 0 || trial->asked[1].after == 0)
		nodes_poll(node, 1);
}

static void poll_often(struct node *node)
{
	for (int i = 0; i < 20; i++)
		nodes_poll(node, 1);
}

static void finish(struct trial *trial, struct node *node)
{
	nodes_await_done(node, 1, trial);
	trial_assert_good(trial, node);
	trial_free(trial);
}

static void memory_is_in_use_until_each_gpu_is_past_it(void **state)
{
	struct trial trial;
	struct node node;

	for (unsigned slow = 0; slow <= 3; slow += 3) {
		uint64_t idle_pause;

		node_ready(&node, *state, &two);
		idle_pause = communicator_poll(node.communicator, 0);
		machine_hold(*state, slow);
		put(&trial, &node, 0, COMMUNICATOR_BROADCAST);
		await_put(&trial, &node);
		poll_often(&node);
		assert_int_equal(trial.asked[0].done + trial.asked[1].done, 0);
		assert_true(communicator_poll(node.communicator, 0) < idle_pause);
		machine_let_go(*state, slow);
		finish(&trial, &node);
		node_free(&node);
	}
}

static void the_streams_take_a_full_queue(void **state)
{
	static struct trial trials[COMMUNICATOR_QUEUE];
	struct node node;

	node_ready(&node, *state, &two);
	machine_hold(*state, 0);
	for (unsigned i = 0; i < COMMUNICATOR_QUEUE; i++)
		put(&trials[i], &node, i, COMMUNICATOR_REDUCE_SCATTER);
	await_put(&trials[COMMUNICATOR_QUEUE - 1], &node);
	poll_often(&node);
	machine_let_go(*state, 0);
	for (unsigned i = 0; i < COMMUNICATOR_QUEUE; i++)
		finish(&trials[i], &node);
	node_free(&node);
}

static struct node *this_node;

static int hold_gpu_0(struct communicator_request *request, void *stream)
{
	container_of(request, struct asked, request)->before++;
	machine_hold(this_node->machine, 0);
	return 0;
}

/* Not from when it was put on the streams, behind others. */
static void the_time_of_an_operation_is_from_when_the_one_before_it_is_done(void **state)
{
	struct trial trials[2];
	struct node node;

	node_ready(&node, *state, &two);
	this_node = &node;
	machine_hold(*state, 3);
	put(&trials[0], &node, 0, COMMUNICATOR_ALL_GATHER);
	trial_new(&trials[1], &node, 1, COMMUNICATOR_ALL_GATHER, 0, 600);
	trials[1].asked[0].request.before = hold_gpu_0;
	assert_int_equal(trial_announce(&trials[1], &node), 0);
	trial_ask(&trials[1], &node);
	await_put(&trials[1], &node);
	node.now_ns = OPERATION_TIMEOUT;
	machine_let_go(*state, 3);
	finish(&trials[0], &node);
	node.now_ns += OPERATION_TIMEOUT;
	poll_often(&node);
	assert_int_equal(communicator_state(node.communicator), COMMUNICATOR_READY);
	machine_let_go(*state, 0);
	finish(&trials[1], &node);
	node_free(&node);
}

/* ---- Aborted ---- */

static void assert_aborted(struct trial *trial, struct node *node, int status)
{
	trial_assert_failed(trial, node, status);
	assert_int_equal(trial_announce(trial, node), -ECANCELED);
	trial_free(trial);
}

static void abort_it(struct asked *asked)
{
	communicator_abort(this_node->communicator, "a rank has died");
}

/* What the GPUs are past is not told as done either: its memory may be half of an epoch's. */
static void what_is_done_may_abort_what_is_behind_it(void **state)
{
	struct trial trials[4];
	struct node node;

	node_ready(&node, *state, &two);
	this_node = &node;
	machine_hold(*state, 0);
	for (unsigned i = 0; i < 3; i++)
		put(&trials[i], &node, i, COMMUNICATOR_REDUCE_SCATTER);
	trial_new(&trials[3], &node, 3, COMMUNICATOR_ALL_GATHER, 0, 100);
	trial_ask(&trials[3], &node);
	trials[0].asked[1].then = abort_it;
	await_put(&trials[2], &node);
	machine_let_go(*state, 0);
	machine_drain(*state);
	nodes_await(&node, 1, COMMUNICATOR_ABORTED);
	assert_string_equal(communicator_problem(node.communicator),
			    "job gpt, epoch 3: aborted: a rank has died");
	communicator_abort(node.communicator, "once more");
	assert_string_equal(communicator_problem(node.communicator),
			    "job gpt, epoch 3: aborted: a rank has died");
	trial_assert_good(&trials[0], &node);
	trial_free(&trials[0]);
	for (unsigned i = 1; i < 4; i++)
		assert_aborted(&trials[i], &node, -ECANCELED);
	node_free(&node);
}

static void what_is_on_the_streams_is_waited_for_when_it_is_aborted(void **state)
{
	struct trial trials[2];
	struct node node;

	node_ready(&node, *state, &two);
	machine_hold(*state, 3);
	for (unsigned i = 0; i < 2; i++)
		put(&trials[i], &node, i, COMMUNICATOR_ALL_REDUCE);
	await_put(&trials[1], &node);
	communicator_abort(node.communicator, "a rank has died");
	poll_often(&node);
	assert_int_equal(communicator_state(node.communicator), COMMUNICATOR_ABORTING);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(trials[i].asked[0].done + trials[i].asked[1].done, 0);
	machine_let_go(*state, 3);
	nodes_await(&node, 1, COMMUNICATOR_ABORTED);
	for (unsigned i = 0; i < 2; i++)
		assert_aborted(&trials[i], &node, -ECANCELED);
	node_free(&node);
}

/* Its first step is on the streams, and the second is refused. */
static void half_an_operation_is_waited_for_too(void **state)
{
	const struct node_plan small = { .rank_count = 2, .gpu_of_rank = { 0, 3 }, .staging_bytes = 64 * 4 };
	struct trial trial;
	struct node node;

	node_ready(&node, *state, &small);
	standin_tell("STANDIN_FAILURES", "ncclSend#3=2");
	machine_hold(*state, 0);
	put(&trial, &node, 0, COMMUNICATOR_REDUCE_SCATTER);
	nodes_await(&node, 1, COMMUNICATOR_ABORTING);
	poll_often(&node);
	assert_int_equal(communicator_state(node.communicator), COMMUNICATOR_ABORTING);
	assert_int_equal(trial.asked[0].done + trial.asked[1].done, 0);
	machine_let_go(*state, 0);
	nodes_await(&node, 1, COMMUNICATOR_ABORTED);
	assert_aborted(&trial, &node, -EIO);
	machine_drain(*state);
	standin_tell("STANDIN_FAILURES", NULL);
	node_free(&node);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(memory_is_in_use_until_each_gpu_is_past_it),
		TEST(the_streams_take_a_full_queue),
		TEST(the_time_of_an_operation_is_from_when_the_one_before_it_is_done),
		TEST(what_is_done_may_abort_what_is_behind_it),
		TEST(what_is_on_the_streams_is_waited_for_when_it_is_aborted),
		TEST(half_an_operation_is_waited_for_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
