/* Communicators that fail: what NCCL refuses, what a GPU does not do any more, members that do not come or
 * ask for something else. Each request is done once, and the text says what to do. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/lib/gpu/nccl_calls.h"
#include "tests/unit/collectives/communicator_node.h"
#include "tests/unit/test.h"

static const struct node_plan two = { .rank_count = 2, .gpu_of_rank = { 0, 3 } };
static const struct node_plan shared = { .rank_count = 3, .gpu_of_rank = { 0, 3, 3 } };

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

static void assert_says(const struct node *node, const char *text)
{
	if (!strstr(communicator_problem(node->communicator), text))
		fail_msg("\"%s\" does not say \"%s\"", communicator_problem(node->communicator), text);
}

/* What was broken is whole again, and the next epoch works. */
static void assert_next_epoch_works(struct machine *machine, const struct node_plan *plan)
{
	struct trial trial;
	struct node node;

	machine_reset(machine);
	assert_int_equal(node_new(&node, machine, plan), 0);
	trial_new(&trial, &node, 0, COMMUNICATOR_ALL_REDUCE, REDUCE_BF16, 500);
	assert_int_equal(trial_announce(&trial, &node), 0);
	trial_ask(&trial, &node);
	nodes_await_done(&node, 1, &trial);
	trial_assert_good(&trial, &node);
	trial_free(&trial);
	node_free(&node);
}

/* ---- Calls that fail ---- */

/* What has one operation of each kind under way when it fails, and one that nobody has announced. */
static void fail_in(struct machine *machine, const struct node_plan *plan, int status, const char *text)
{
	struct trial trials[COMMUNICATOR_KINDS + 1];
	struct node node;

	machine_reset(machine);
	assert_int_equal(node_new(&node, machine, plan), 0);
	for (unsigned i = 0; i <= COMMUNICATOR_KINDS; i++) {
		enum communicator_kind kind = (enum communicator_kind)(i % COMMUNICATOR_KINDS);

		trial_new(&trials[i], &node, i, kind, REDUCE_FP32, 300);
		/* What was refused at once is not lent. */
		if (communicator_state(node.communicator) == COMMUNICATOR_CREATING)
			trial_ask(&trials[i], &node);
		if (i < COMMUNICATOR_KINDS && communicator_state(node.communicator) == COMMUNICATOR_CREATING)
			assert_int_equal(trial_announce(&trials[i], &node), 0);
	}
	nodes_await(&node, 1, COMMUNICATOR_ABORTED);
	assert_says(&node, text);
	assert_says(&node, "gpt");
	for (unsigned i = 0; i <= COMMUNICATOR_KINDS; i++) {
		if (trials[i].asked[0].status != 0)
			trial_assert_failed(&trials[i], &node, status);
		trial_free(&trials[i]);
	}
	assert_int_equal(trials[COMMUNICATOR_KINDS].asked[0].status,
			 trials[COMMUNICATOR_KINDS].asked[0].is_asked ? status : 0);
	node_free(&node);
}

static void a_call_that_fails_aborts_it_and_is_named(void **state)
{
	static const struct {
		const char *failures;
		int status;
		const char *text;
	} cases[] = {
		{ "ncclCommInitRankConfig=1", -EIO,
		  "job gpt, epoch 3: ncclCommInitRankConfig on GPU 0 (rank 0): the stand-in's error (error "
		  "1)" },
		{ "ncclCommInitRankConfig#2=2", -EIO, "ncclCommInitRankConfig on GPU 3 (rank 1)" },
		{ "ncclGroupStart=3", -EIO, "ncclGroupStart" },
		{ "ncclGroupEnd=3", -EIO, "ncclGroupEnd after ncclCommInitRankConfig" },
		{ "ncclGroupEnd#2=3", -EIO, "ncclGroupEnd after ncclAllGather" },
		{ "ncclCommGetAsyncError#3=4", -EINVAL, "ncclCommGetAsyncError" },
		{ "asynchronous=6", -ECONNRESET, "the log of its node says more" },
		{ "asynchronous#7=1", -EIO, "Xid" },
		{ "ncclAllGather=5", -EINVAL, "ncclAllGather" },
		{ "ncclBroadcast#2=5", -EINVAL, "ncclBroadcast on GPU 3 (rank 1)" },
		{ "ncclSend=5", -EINVAL, "ncclSend and ncclRecv" },
		{ "ncclRecv=77", -EIO, "(error 77)" },
		{ "cuLaunchHostFunc#2=719", -EIO, "the stream takes no kernel" },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		setenv("STANDIN_FAILURES", cases[i].failures, 1);
		fail_in(*state, &two, cases[i].status, cases[i].text);
		machine_drain(*state);
		unsetenv("STANDIN_FAILURES");
	}
	setenv("STANDIN_FAILURES", "ncclBroadcast#4=5", 1);
	fail_in(*state, &shared, -EINVAL, "ncclBroadcast on GPU 3 (ranks 1, 2)");
	machine_drain(*state);
	unsetenv("STANDIN_FAILURES");
	assert_next_epoch_works(*state, &two);
}

/* NCCL moves without it. */
static void memory_that_cannot_be_registered_is_no_failure(void **state)
{
	setenv("STANDIN_FAILURES", "ncclCommRegister=5", 1);
	assert_next_epoch_works(*state, &two);
	machine_drain(*state);
	unsetenv("STANDIN_FAILURES");
}

static void a_gpu_that_does_not_go_on_is_named(void **state)
{
	static const struct {
		enum machine_fault fault;
		const char *text;
	} cases[] = {
		{ FAULT_USE, "GPU 3 cannot be used: No such device" },
		{ FAULT_COPY, "all-gather number 0 (layer 7): GPU 3 cannot copy" },
		{ FAULT_SUM, "reduce-scatter number 2 (layer 7): GPU 3 cannot sum" },
		{ FAULT_MARK, "GPU 3 cannot say when" },
		{ FAULT_ANSWER, "GPU 3 does not answer any more" },
	};
	struct machine *machine = *state;

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		machine->fault = cases[i].fault;
		fail_in(machine, &shared, -ENODEV, cases[i].text);
		machine->fault = FAULT_NONE;
		machine_drain(machine);
	}
	assert_next_epoch_works(machine, &shared);
}

/* ---- Members that do not come, or differ ---- */

/* As nodes that number their GPUs differently would. */
static void two_members_of_one_gpu_are_refused_by_nccl(void **state)
{
	struct nccl_id id;
	const struct node_plan parts[] = {
		{ .rank_count = 2, .gpu_of_rank = { 0, 3 }, .first = 0, .count = 1, .id = &id },
		{ .rank_count = 2, .gpu_of_rank = { 3, 0 }, .first = 1, .count = 1, .id = &id },
	};
	struct node nodes[2];

	machine_reset(*state);
	assert_int_equal(ncclGetUniqueId(&id), NCCL_DONE);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(node_new(&nodes[i], *state, &parts[i]), 0);
	nodes_await(&nodes[1], 1, COMMUNICATOR_ABORTED);
	assert_says(&nodes[1],
		    "ncclCommInitRankConfig on GPU 0 (rank 1): the stand-in's error (error 5): Duplicate "
		    "GPU detected");
	for (unsigned i = 0; i < 2; i++)
		node_free(&nodes[i]);
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
	assert_says(&node, "job gpt, epoch 3: ncclCommInitRankConfig: its 2 members have not found one "
			   "another within 30 s; "
			   "1 of them are here");
	trial_free(&trial);
	node_free(&node);
	assert_next_epoch_works(*state, &two);
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
	assert_says(&nodes[0], "ncclCommFinalize");
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
	assert_says(&nodes[0], "job gpt, epoch 3, all-gather number 0 (layer 7): not done after 60 s on GPU "
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
	assert_next_epoch_works(*state, &two);
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
	assert_says(
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
	assert_says(&node, "all ranks must run the same program");
	/* A refusal changes nothing: its owner decides. */
	assert_int_equal(communicator_close(node.communicator, 0), -EBUSY);
	communicator_abort(node.communicator, "rank 0 does something else");
	nodes_await(&node, 1, COMMUNICATOR_ABORTED);
	trial_assert_failed(&trial, &node, -ECANCELED);
	trial_free(&trial);
	node_free(&node);
}

static int refuse(struct communicator_request *request, void *stream)
{
	return -ENOMEM;
}

static void what_its_owner_cannot_put_on_the_stream_aborts_it(void **state)
{
	for (int is_after = 0; is_after < 2; is_after++) {
		struct trial trial;
		struct node node;

		machine_reset(*state);
		assert_int_equal(node_new(&node, *state, &two), 0);
		trial_new(&trial, &node, 0, COMMUNICATOR_BROADCAST, 0, 64);
		*(is_after ? &trial.asked[1].request.after : &trial.asked[1].request.before) = refuse;
		assert_int_equal(trial_announce(&trial, &node), 0);
		trial_ask(&trial, &node);
		nodes_await(&node, 1, COMMUNICATOR_ABORTED);
		trial_assert_failed(&trial, &node, -ENOMEM);
		assert_says(&node, "broadcast number 0 (layer 7): what the memory of rank 1 waits for");
		trial_free(&trial);
		node_free(&node);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_call_that_fails_aborts_it_and_is_named),
		TEST(memory_that_cannot_be_registered_is_no_failure),
		TEST(a_gpu_that_does_not_go_on_is_named),
		TEST(two_members_of_one_gpu_are_refused_by_nccl),
		TEST(a_member_that_never_comes_is_waited_for_until_the_deadline),
		TEST(members_that_do_not_leave_are_waited_for_until_the_deadline),
		TEST(counts_that_differ_between_nodes_end_at_the_deadline),
		TEST(a_rank_of_this_node_that_asks_for_something_else_is_refused),
		TEST(what_its_owner_cannot_put_on_the_stream_aborts_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
