/* Communicators that fail: what NCCL refuses, what a GPU does not do any more, members that do not come or
 * ask for something else. Each request is done once, and the text says what to do. */
#include <errno.h>
#include <string.h>

#include "tests/lib/gpu/nccl_calls.h"
#include "tests/lib/gpu/script.h"
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
	node_assert_says(&node, text);
	node_assert_says(&node, "gpt");
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
		standin_tell("STANDIN_FAILURES", cases[i].failures);
		fail_in(*state, &two, cases[i].status, cases[i].text);
		machine_drain(*state);
		standin_tell("STANDIN_FAILURES", NULL);
	}
	standin_tell("STANDIN_FAILURES", "ncclBroadcast#4=5");
	fail_in(*state, &shared, -EINVAL, "ncclBroadcast on GPU 3 (ranks 1, 2)");
	machine_drain(*state);
	standin_tell("STANDIN_FAILURES", NULL);
	machine_assert_works(*state, &two);
}

static void an_id_that_nccl_does_not_make_is_named(void **state)
{
	struct dynamic_library library = { 0 };
	char problem[256];
	struct nccl nccl;
	struct nccl_id id;

	assert_true(nccl_open(&nccl, &library));
	standin_tell("STANDIN_FAILURES", "ncclGetUniqueId=2");
	assert_int_equal(communicator_make_id(&nccl, &id, problem, sizeof(problem)), -EIO);
	standin_tell("STANDIN_FAILURES", NULL);
	assert_non_null(strstr(problem, "ncclGetUniqueId: the stand-in's error (error 2)"));
}

static void a_call_that_fails_at_the_end_aborts_it(void **state)
{
	static const struct {
		const char *failures, *text;
	} cases[] = {
		{ "ncclCommDeregister=4",
		  "ncclCommDeregister on GPU 0 (rank 0): the stand-in's error (error 4)" },
		{ "ncclCommFinalize#2=2",
		  "ncclCommFinalize on GPU 3 (rank 1): the stand-in's error (error 2)" },
		{ "ncclCommDestroy=77",
		  "ncclCommDestroy on GPU 0 (rank 0): the stand-in's error (error 77)" },
		{ "ncclCommFinalize=3,ncclCommAbort=1", "ncclCommFinalize on GPU 0" },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		struct node node;

		machine_reset(*state);
		assert_int_equal(node_new(&node, *state, &two), 0);
		nodes_await(&node, 1, COMMUNICATOR_READY);
		standin_tell("STANDIN_FAILURES", cases[i].failures);
		assert_int_equal(communicator_close(node.communicator, 0), 0);
		nodes_await(&node, 1, COMMUNICATOR_ABORTED);
		standin_tell("STANDIN_FAILURES", NULL);
		node_assert_says(&node, cases[i].text);
		node_free(&node);
	}
}

/* NCCL moves without it. */
static void memory_that_cannot_be_registered_is_no_failure(void **state)
{
	standin_tell("STANDIN_FAILURES", "ncclCommRegister=5");
	machine_assert_works(*state, &two);
	machine_drain(*state);
	standin_tell("STANDIN_FAILURES", NULL);
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
	machine_assert_works(machine, &shared);
}

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
	node_assert_says(
		&nodes[1],
		"ncclCommInitRankConfig on GPU 0 (rank 1): the stand-in's error (error 5): Duplicate "
		"GPU detected");
	for (unsigned i = 0; i < 2; i++)
		node_free(&nodes[i]);
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
		node_assert_says(&node, "broadcast number 0 (layer 7): what the memory of rank 1 waits for");
		trial_free(&trial);
		node_free(&node);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_call_that_fails_aborts_it_and_is_named),
		TEST(an_id_that_nccl_does_not_make_is_named),
		TEST(a_call_that_fails_at_the_end_aborts_it),
		TEST(memory_that_cannot_be_registered_is_no_failure),
		TEST(a_gpu_that_does_not_go_on_is_named),
		TEST(two_members_of_one_gpu_are_refused_by_nccl),
		TEST(what_its_owner_cannot_put_on_the_stream_aborts_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
