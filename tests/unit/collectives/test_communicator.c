/* What a communicator moves and sums, by the stand-ins for the driver and NCCL: bit for bit what the
 * processor does, whatever GPUs the ranks have, and in the order that was announced. */
#include <errno.h>
#include <string.h>

#include "tests/lib/gpu/nccl_calls.h"
#include "tests/unit/collectives/communicator_node.h"
#include "tests/unit/test.h"

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

static const struct node_plan two = { .rank_count = 2, .gpu_of_rank = { 0, 1 } };

/* A GPU each; some that share one; all on one, without NCCL, and with it. */
static const struct node_plan plans[] = {
	{ .rank_count = 2, .gpu_of_rank = { 0, 1 } },
	{ .rank_count = 3, .gpu_of_rank = { 0, 1, 2 } },
	{ .rank_count = 4, .gpu_of_rank = { 0, 1, 2, 3 } },
	{ .rank_count = 4, .gpu_of_rank = { 0, 0, 1, 1 } },
	{ .rank_count = 3, .gpu_of_rank = { 0, 1, 0 } },
	{ .rank_count = 4, .gpu_of_rank = { 2, 1, 1, 0 } },
	{ .rank_count = 1, .gpu_of_rank = { 3 } },
	{ .rank_count = 3, .gpu_of_rank = { 1, 1, 1 } },
	{ .rank_count = 2, .gpu_of_rank = { 2, 2 }, .has_nccl = true },
};

#define FOREACH_PLAN(plan)                                                                                   \
	for (const struct node_plan *plan = plans; plan < plans + ARRAY_LENGTH(plans); plan++)

static void play(struct trial *trial, struct node *node)
{
	assert_int_equal(trial_announce(trial, node), 0);
	trial_ask(trial, node);
	assert_int_equal(trial->asked[0].done, 0);
	nodes_await_done(node, 1, trial);
	trial_assert_good(trial, node);
	trial_free(trial);
}

/* ---- Results ---- */

static void arrays_are_gathered_and_broadcast(void **state)
{
	/* Even pieces, uneven ones, some without any byte. */
	static const uint64_t sizes[] = { 12 * 4096, 1001, 2, 0 };

	FOREACH_PLAN(plan)
	{
		struct node node;
		struct trial trial;
		uint64_t sequence = 0;

		machine_reset(*state);
		assert_int_equal(node_new(&node, *state, plan), 0);
		for (size_t i = 0; i < ARRAY_LENGTH(sizes); i++) {
			trial_new(&trial, &node, sequence++, COMMUNICATOR_ALL_GATHER, 0, sizes[i]);
			play(&trial, &node);
			trial_new(&trial, &node, sequence++, COMMUNICATOR_BROADCAST, 0, sizes[i]);
			play(&trial, &node);
		}
		for (unsigned root = 0; root < plan->rank_count; root++) {
			trial_new(&trial, &node, sequence++, COMMUNICATOR_BROADCAST, 0, 100);
			/* What the last rank has is all that is known. */
			memcpy(trial.asked[root].request.array, trial.expected, 100);
			trial.operation.root = root;
			play(&trial, &node);
		}
		node_free(&node);
	}
}

static void ranks_may_have_one_array(void **state)
{
	const struct node_plan plan = { .rank_count = 3, .gpu_of_rank = { 0, 1, 0 } };
	struct machine *machine = *state;
	struct trial trial;
	struct node node;
	unsigned copies;

	machine_reset(machine);
	assert_int_equal(node_new(&node, machine, &plan), 0);
	trial_new(&trial, &node, 0, COMMUNICATOR_ALL_GATHER, 0, 300);
	memcpy((char *)trial.asked[0].request.array + 200, (char *)trial.asked[2].request.array + 200, 100);
	trial.asked[2].request.array = trial.asked[0].request.array;
	copies = machine->copies;
	play(&trial, &node);
	assert_int_equal(machine->copies, copies);
	node_free(&node);
}

static void assert_sums(struct node *node, uint64_t *sequence, uint64_t count, bool is_absent)
{
	for (int i = 0; i < REDUCE_FORMATS * 4; i++) {
		enum communicator_kind kind = i & 1 ? COMMUNICATOR_ALL_REDUCE : COMMUNICATOR_REDUCE_SCATTER;
		struct trial trial;

		trial_new(&trial, node, (*sequence)++, kind, (enum reduce_format)(i / 4), count);
		for (unsigned rank = 0; rank < node->rank_count; rank++) {
			trial.asked[rank].request.is_added = i & 2;
			trial.absent[rank] = is_absent && rank == node->rank_count / 2;
			if (trial.absent[rank])
				trial.asked[rank].request.contribution = NULL;
		}
		play(&trial, node);
	}
}

static void sums_have_the_bits_of_the_processor(void **state)
{
	FOREACH_PLAN(plan)
	{
		struct node node;
		uint64_t sequence = 0;

		machine_reset(*state);
		assert_int_equal(node_new(&node, *state, plan), 0);
		assert_sums(&node, &sequence, 1024, false);
		assert_sums(&node, &sequence, 1, false);
		assert_sums(&node, &sequence, 0, false);
		if (plan->rank_count > 1)
			assert_sums(&node, &sequence, 777, true);
		node_free(&node);
	}
}

static void a_sum_that_staging_memory_does_not_hold_takes_several_steps(void **state)
{
	/* 64 elements of what a member gets: of 3 ranks elsewhere, of 2 for 2. */
	struct node_plan plan = { .rank_count = 4,
				  .gpu_of_rank = { 0, 1, 2, 3 },
				  .staging_bytes = 3 * 64 * 4 };
	uint64_t sequence = 0;
	struct node node;

	machine_reset(*state);
	plan.staging_bytes--;
	assert_int_equal(node_new(&node, *state, &plan), -EINVAL);
	plan.staging_bytes++;
	assert_int_equal(node_new(&node, *state, &plan), 0);
	assert_sums(&node, &sequence, 2500, false);
	node_free(&node);

	/* A member that is not the first gets most: 4 parts. */
	machine_reset(*state);
	plan = (struct node_plan){ .rank_count = 4,
				   .gpu_of_rank = { 2, 1, 1, 0 },
				   .staging_bytes = 3 * 128 * 4 };
	assert_int_equal(node_new(&node, *state, &plan), 0);
	sequence = 0;
	assert_sums(&node, &sequence, 2500, true);
	node_free(&node);
}

/* Of each rank's piece: as if the elements before the window, and after it, were not there. */
static void assert_window(struct node *node, uint64_t sequence, uint64_t first, uint64_t count)
{
	struct trial trial;

	trial_new(&trial, node, sequence, COMMUNICATOR_REDUCE_SCATTER, REDUCE_BF16, 2500);
	trial.operation.window_first = first;
	trial.operation.window_count = count;
	for (unsigned rank = 0; rank < node->rank_count; rank++)
		for (uint64_t i = 0; i < 2500; i++)
			trial.asked[rank].request.sum[i] = -1;
	assert_int_equal(trial_announce(&trial, node), 0);
	trial_ask(&trial, node);
	nodes_await_done(node, 1, &trial);
	for (unsigned rank = 0; rank < node->rank_count; rank++) {
		const float *sum = trial.asked[rank].request.sum;
		const float *expected = (const float *)trial.expected + trial.bounds[rank];
		uint64_t piece = trial.bounds[rank + 1] - trial.bounds[rank];
		uint64_t end = first + count < piece ? first + count : piece;

		for (uint64_t i = first; i < end; i++)
			assert_true(sum[i - first] == expected[i]);
		/* It has room for no more. */
		for (uint64_t i = first < end ? end - first : 0; i < piece; i++)
			assert_true(sum[i] == -1);
	}
	trial_free(&trial);
}

static void of_each_piece_a_window_may_be_summed(void **state)
{
	const struct node_plan plan = { .rank_count = 3,
					.gpu_of_rank = { 0, 1, 0 },
					.staging_bytes = 2 * 128 * 4 };
	uint64_t sequence = 0;
	struct node node;

	machine_reset(*state);
	assert_int_equal(node_new(&node, *state, &plan), 0);
	assert_window(&node, sequence++, 0, 300);
	assert_window(&node, sequence++, 300, 300);
	/* The pieces have 833, and the last 834. */
	assert_window(&node, sequence++, 600, 300);
	assert_window(&node, sequence++, 833, 300);
	assert_window(&node, sequence++, 900, 300);
	node_free(&node);
}

static void without_staging_memory_there_are_no_sums(void **state)
{
	static const uint64_t bounds[] = { 0, 4, 8 };
	const struct node_plan plan = { .rank_count = 2, .gpu_of_rank = { 0, 1 }, .has_no_staging = true };
	struct communicator_operation sum = {
		.kind = COMMUNICATOR_ALL_REDUCE, .name = "layer 7", .bounds = bounds, .format = REDUCE_FP32
	};
	struct trial trial;
	struct node node;

	machine_reset(*state);
	assert_int_equal(node_new(&node, *state, &plan), 0);
	assert_int_equal(communicator_announce(node.communicator, &sum), -EOPNOTSUPP);
	assert_non_null(strstr(communicator_problem(node.communicator), "has no memory for sums"));
	sum.kind = COMMUNICATOR_REDUCE_SCATTER;
	assert_int_equal(communicator_announce(node.communicator, &sum), -EOPNOTSUPP);
	trial_new(&trial, &node, 0, COMMUNICATOR_ALL_GATHER, 0, 1001);
	play(&trial, &node);
	node_free(&node);
}

/* Each has a part of the members; nothing but the id is exchanged. */
static void members_may_be_of_several_nodes(void **state)
{
	struct nccl_id id;
	const struct node_plan parts[] = {
		{ .rank_count = 4, .gpu_of_rank = { 0, 1, 2, 0 }, .first = 0, .count = 2, .id = &id },
		{ .rank_count = 4, .gpu_of_rank = { 0, 1, 2, 0 }, .first = 2, .count = 1, .id = &id },
	};
	struct node nodes[2];
	struct trial trial;

	machine_reset(*state);
	assert_int_equal(ncclGetUniqueId(&id), NCCL_DONE);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(node_new(&nodes[i], *state, &parts[i]), 0);
	for (uint64_t sequence = 0; sequence < 2; sequence++) {
		trial_new(&trial, &nodes[0], sequence,
			  sequence ? COMMUNICATOR_ALL_REDUCE : COMMUNICATOR_ALL_GATHER, REDUCE_BF16, 3000);
		for (unsigned i = 0; i < 2; i++) {
			assert_int_equal(trial_announce(&trial, &nodes[i]), 0);
			trial_ask(&trial, &nodes[i]);
		}
		nodes_await_done(nodes, 2, &trial);
		trial_assert_good(&trial, &nodes[0]);
		trial_free(&trial);
	}
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(communicator_close(nodes[i].communicator, 0), 0);
	nodes_await(nodes, 2, COMMUNICATOR_CLOSED);
	nodes_await(&nodes[1], 1, COMMUNICATOR_CLOSED);
	for (unsigned i = 0; i < 2; i++)
		node_free(&nodes[i]);
}

/* ---- Order ---- */

static unsigned ended;

static void count_ended(struct asked *asked)
{
	assert_int_equal(asked->request.sequence, ended / 2);
	ended++;
}

static void operations_run_in_the_order_announced_and_not_in_that_asked_for(void **state)
{
	struct trial trials[5];
	struct node node;

	machine_reset(*state);
	assert_int_equal(node_new(&node, *state, &two), 0);
	ended = 0;
	for (unsigned i = 0; i < 5; i++) {
		trial_new(&trials[i], &node, i, COMMUNICATOR_ALL_GATHER, 0, 64);
		trials[i].asked[0].then = trials[i].asked[1].then = count_ended;
	}
	/* Asked for last first; some announced before, some after. */
	for (unsigned i = 5; i-- > 0;) {
		if (i % 2)
			assert_int_equal(trial_announce(&trials[i], &node), 0);
		trial_ask(&trials[i], &node);
		if (i % 2 == 0)
			assert_int_equal(trial_announce(&trials[i], &node), 0);
		communicator_poll(node.communicator, 0);
	}
	for (unsigned i = 0; i < 5; i++) {
		nodes_await_done(&node, 1, &trials[i]);
		trial_assert_good(&trials[i], &node);
		trial_free(&trials[i]);
	}
	assert_int_equal(ended, 10);
	node_free(&node);
}

static void an_operation_begins_when_all_ranks_ask_for_it(void **state)
{
	struct trial trial;
	struct node node;

	machine_reset(*state);
	assert_int_equal(node_new(&node, *state, &two), 0);
	nodes_await(&node, 1, COMMUNICATOR_READY);
	trial_new(&trial, &node, 0, COMMUNICATOR_ALL_GATHER, 0, 64);
	assert_int_equal(trial_announce(&trial, &node), 0);
	assert_int_equal(communicator_ask(node.communicator, &trial.asked[1].request), 0);
	/* The clock of an operation that has not begun does not run. */
	node.now_ns += 2 * OPERATION_TIMEOUT;
	for (int i = 0; i < 10; i++)
		communicator_poll(node.communicator, node.now_ns);
	assert_int_equal(trial.asked[1].before, 0);
	assert_int_equal(communicator_ask(node.communicator, &trial.asked[0].request), 0);
	trial.asked[0].is_asked = trial.asked[1].is_asked = true;
	nodes_await_done(&node, 1, &trial);
	trial_assert_good(&trial, &node);
	trial_free(&trial);
	node_free(&node);
}

#define OPERATIONS (3 * COMMUNICATOR_QUEUE)

/* Each asks for one that is a queue's length ahead when it is done. */
static void the_queue_takes_the_next_when_one_is_done(void **state)
{
	static struct trial trials[OPERATIONS];
	struct node node;
	struct trial over;

	machine_reset(*state);
	assert_int_equal(node_new(&node, *state, &two), 0);
	for (unsigned i = 0; i < OPERATIONS; i++)
		trial_new(&trials[i], &node, i, COMMUNICATOR_ALL_GATHER, 0, 8);
	for (unsigned i = 0; i < COMMUNICATOR_QUEUE; i++) {
		assert_int_equal(trial_announce(&trials[i], &node), 0);
		trial_ask(&trials[i], &node);
	}
	for (unsigned i = 0; i < OPERATIONS; i++) {
		if (i + COMMUNICATOR_QUEUE < OPERATIONS && trials[i].asked[0].done == 0)
			assert_int_equal(trial_announce(&trials[i + COMMUNICATOR_QUEUE], &node), -ENOBUFS);
		nodes_await_done(&node, 1, &trials[i]);
		trial_assert_good(&trials[i], &node);
		if (i + COMMUNICATOR_QUEUE < OPERATIONS) {
			assert_int_equal(trial_announce(&trials[i + COMMUNICATOR_QUEUE], &node), 0);
			trial_ask(&trials[i + COMMUNICATOR_QUEUE], &node);
		}
	}
	trial_new(&over, &node, 5, COMMUNICATOR_ALL_GATHER, 0, 8);
	assert_int_equal(trial_announce(&over, &node), -ESTALE);
	assert_int_equal(communicator_ask(node.communicator, &over.asked[0].request), -ESTALE);
	trial_free(&over);
	for (unsigned i = 0; i < OPERATIONS; i++)
		trial_free(&trials[i]);
	assert_int_equal(communicator_close(node.communicator, 0), 0);
	nodes_await(&node, 1, COMMUNICATOR_CLOSED);
	node_free(&node);
}

static void memory_is_registered_while_it_is_ready(void **state)
{
	struct machine *machine = *state;
	struct node node;

	machine_reset(machine);
	assert_int_equal(node_new(&node, machine, &two), 0);
	nodes_await(&node, 1, COMMUNICATOR_READY);
	/* The staging memory is one. */
	for (unsigned i = 1; i < COMMUNICATOR_RANGES; i++)
		assert_int_equal(
			communicator_register(node.communicator, 1, machine_allocate(machine, 1, 64), 64), 0);
	assert_int_equal(communicator_register(node.communicator, 1, machine->gpus[1].memory, 64), -ENOBUFS);
	/* NCCL would refuse to end with memory that it knows. */
	assert_int_equal(communicator_close(node.communicator, 0), 0);
	nodes_await(&node, 1, COMMUNICATOR_CLOSED);
	node_free(&node);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(arrays_are_gathered_and_broadcast),
		TEST(ranks_may_have_one_array),
		TEST(sums_have_the_bits_of_the_processor),
		TEST(a_sum_that_staging_memory_does_not_hold_takes_several_steps),
		TEST(of_each_piece_a_window_may_be_summed),
		TEST(without_staging_memory_there_are_no_sums),
		TEST(members_may_be_of_several_nodes),
		TEST(operations_run_in_the_order_announced_and_not_in_that_asked_for),
		TEST(an_operation_begins_when_all_ranks_ask_for_it),
		TEST(the_queue_takes_the_next_when_one_is_done),
		TEST(memory_is_registered_while_it_is_ready),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
