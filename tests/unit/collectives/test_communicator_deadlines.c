/* Members that do not come, do not leave, or do something else: NCCL waits for ever, a communicator until its
 * deadline, and what can be seen at once is refused. */
#include <errno.h>

#include "tests/lib/gpu/nccl_calls.h"
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

static void two_nodes_new(struct machine *machine, struct node *nodes)
{
	struct nccl_id id;
	struct node_plan part = { .rank_count = 2, .gpu_of_rank = { 0, 3 }, .count = 1, .id = &id };

	machine_reset(machine);
	assert_int_equal(ncclGetUniqueId(&id), NCCL_DONE);
	for (; part.first < 2; part.first++)
		assert_int_equal(node_new(&nodes[part.first], machine, &part), 0);
}

static void a_member_that_never_comes_is_waited_for_until_the_deadline(void **state)
{
	const struct node_plan part = { .rank_count = 2, .gpu_of_rank = { 0, 3 }, .count = 1 };
	struct trial trial;
	struct node node;

	machine_reset(*state);
	assert_int_equal(node_new(&node, *state, &part), 0);
	trial_new(&trial, &node, 0, COMMUNICATOR_ALL_GATHER, 0, 64);
	trial_ask(&trial, &node);
	node.now_ns += CREATION_TIMEOUT;
	communicator_poll(node.communicator, node.now_ns);
	assert_int_equal(communicator_state(node.communicator), COMMUNICATOR_CREATING);
	node.now_ns++;
	nodes_await(&node, 1, COMMUNICATOR_ABORTED);
	trial_assert_failed(&trial, &node, -ETIMEDOUT);
	node_assert_says(&node, "job gpt, epoch 3: ncclCommInitRankConfig: its 2 members have not found one "
				"another within 30 s; "
				"1 of them are here");
	trial_free(&trial);
	node_free(&node);
	machine_assert_works(*state, &two);
}

static void members_that_do_not_leave_are_waited_for_until_the_deadline(void **state)
{
	struct node nodes[2];

	two_nodes_new(*state, nodes);
	nodes_await(&nodes[1], 1, COMMUNICATOR_READY);
	nodes_await(nodes, 1, COMMUNICATOR_READY);
	assert_int_equal(communicator_close(nodes[0].communicator, 0), 0);
	communicator_poll(nodes[0].communicator, 0);
	assert_int_equal(communicator_state(nodes[0].communicator), COMMUNICATOR_CLOSING);
	nodes[0].now_ns += CREATION_TIMEOUT + 1;
	nodes_await(nodes, 1, COMMUNICATOR_ABORTED);
	node_assert_says(&nodes[0], "ncclCommFinalize");
	for (unsigned i = 0; i < 2; i++)
		node_free(&nodes[i]);
}

/* NCCL waits for ever; what is behind it waits with it. */
static void counts_that_differ_between_nodes_end_at_the_deadline(void **state)
{
	struct trial trials[2][2];
	struct node nodes[2];

	two_nodes_new(*state, nodes);
	for (unsigned i = 0; i < 2; i++)
		for (unsigned sequence = 0; sequence < 2; sequence++) {
			trial_new(&trials[i][sequence], &nodes[i], sequence, COMMUNICATOR_ALL_GATHER, 0,
				  sequence ? 100 : 200 + 2 * i);
			assert_int_equal(trial_announce(&trials[i][sequence], &nodes[i]), 0);
			trial_ask(&trials[i][sequence], &nodes[i]);
		}
	while (trials[0][1].asked[0].after == 0 || trials[1][1].asked[1].after == 0)
		nodes_poll(nodes, 2);
	nodes[0].now_ns += OPERATION_TIMEOUT;
	nodes_poll(nodes, 2);
	assert_int_equal(communicator_state(nodes[0].communicator), COMMUNICATOR_READY);
	nodes[0].now_ns++;
	nodes_await(nodes, 2, COMMUNICATOR_ABORTED);
	node_assert_says(&nodes[0],
			 "job gpt, epoch 3, all-gather number 0 (layer 7): not done after 60 s on GPU "
			 "0 (rank 0): another "
			 "member");
	for (unsigned sequence = 0; sequence < 2; sequence++)
		trial_assert_failed(&trials[0][sequence], &nodes[0], -ETIMEDOUT);
	/* The other one has its own deadline. */
	assert_int_equal(communicator_state(nodes[1].communicator), COMMUNICATOR_READY);
	nodes[1].now_ns += OPERATION_TIMEOUT + 1;
	nodes_await(&nodes[1], 1, COMMUNICATOR_ABORTED);
	for (unsigned i = 0; i < 2; i++) {
		node_free(&nodes[i]);
		for (unsigned sequence = 0; sequence < 2; sequence++)
			trial_free(&trials[i][sequence]);
	}
	machine_assert_works(*state, &two);
}

/* NCCL says for ever that it is about to put it on the streams. */
static void an_operation_that_nccl_never_starts_ends_at_the_deadline(void **state)
{
	struct trial trial;
	struct node node;

	machine_reset(*state);
	assert_int_equal(node_new(&node, *state, &two), 0);
	trial_new(&trial, &node, 0, COMMUNICATOR_BROADCAST, 0, 64);
	assert_int_equal(trial_announce(&trial, &node), 0);
	trial_ask(&trial, &node);
	while (trial.asked[1].before == 0)
		nodes_poll(&node, 1);
	standin_tell("STANDIN_FAILURES", "asynchronous=7");
	nodes_poll(&node, 1);
	node.now_ns += OPERATION_TIMEOUT + 1;
	nodes_await(&node, 1, COMMUNICATOR_ABORTED);
	standin_tell("STANDIN_FAILURES", NULL);
	node_assert_says(
		&node,
		"broadcast number 0 (layer 7): not done after 60 s on GPU 0 (rank 0), GPU 3 (rank 1): ");
	assert_int_equal(trial.asked[0].after, 0);
	trial_assert_failed(&trial, &node, -ETIMEDOUT);
	trial_free(&trial);
	node_free(&node);
}

static void a_rank_of_this_node_that_asks_for_something_else_is_refused(void **state)
{
	struct trial trial;
	struct node node;

	machine_reset(*state);
	assert_int_equal(node_new(&node, *state, &two), 0);
	nodes_await(&node, 1, COMMUNICATOR_READY);
	trial_new(&trial, &node, 0, COMMUNICATOR_ALL_GATHER, 0, 64);
	trial.asked[1].request.count = 65;
	assert_int_equal(communicator_ask(node.communicator, &trial.asked[1].request), 0);
	trial.asked[1].is_asked = true;
	assert_int_equal(trial_announce(&trial, &node), -EPROTO);
	node_assert_says(
		&node,
		"all-gather number 0 (layer 7): rank 1 asks for all-gather of 65 elements, and rank 0 has "
		"announced 64");
	trial.bounds[2] = 65;
	assert_int_equal(trial_announce(&trial, &node), 0);
	assert_int_equal(trial_announce(&trial, &node), -EEXIST);
	assert_int_equal(communicator_ask(node.communicator, &trial.asked[1].request), -EEXIST);
	trial.asked[0].request.count = 65;
	trial.asked[0].request.kind = COMMUNICATOR_BROADCAST;
	assert_int_equal(communicator_ask(node.communicator, &trial.asked[0].request), -EPROTO);
	node_assert_says(&node, "all ranks must run the same program");
	/* A refusal changes nothing: its owner decides. */
	assert_int_equal(communicator_close(node.communicator, 0), -EBUSY);
	communicator_abort(node.communicator, "rank 0 does something else");
	nodes_await(&node, 1, COMMUNICATOR_ABORTED);
	trial_assert_failed(&trial, &node, -ECANCELED);
	trial_free(&trial);
	node_free(&node);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_member_that_never_comes_is_waited_for_until_the_deadline),
		TEST(members_that_do_not_leave_are_waited_for_until_the_deadline),
		TEST(counts_that_differ_between_nodes_end_at_the_deadline),
		TEST(an_operation_that_nccl_never_starts_ends_at_the_deadline),
		TEST(a_rank_of_this_node_that_asks_for_something_else_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
