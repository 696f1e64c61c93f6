#include "tests/unit/collectives/communicator_node.h"

#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/float16.h"
#include "tests/unit/kernel_support.h"
#include "tests/unit/test.h"

#define PLENTY ((size_t)64 << 10)
#define POISON 0xee

/* ---- Nodes ---- */

static bool is_here(const struct node *node, unsigned rank)
{
	return node->member_of_rank[rank] - node->first < node->count;
}

static void make_members(const struct node *node, size_t staging_bytes, struct communicator_member *members)
{
	for (unsigned rank = 0; rank < node->rank_count; rank++) {
		unsigned gpu = node->gpu_of_rank[rank];
		struct communicator_member *member = &members[node->member_of_rank[rank] - node->first];

		if (is_here(node, rank) && !member->stream)
			*member = (struct communicator_member){
				.gpu = (int)gpu,
				.stream = node->machine->gpus[gpu].stream,
				.staging = staging_bytes > 0
						   ? machine_allocate(node->machine, gpu, staging_bytes)
						   : NULL,
			};
	}
}

int node_new(struct node *node, struct machine *machine, const struct node_plan *plan)
{
	struct communicator_member members[MACHINE_GPUS] = { 0 };
	struct dynamic_library library = { 0 };
	char problem[64];
	struct communicator_options options = { .job = "gpt",
						.epoch = 3,
						.rank_count = plan->rank_count,
						.member_of_rank = node->member_of_rank,
						.first_member = plan->first,
						.members = members,
						.creation_timeout_ns = CREATION_TIMEOUT,
						.operation_timeout_ns = OPERATION_TIMEOUT,
						.ops = &machine_ops,
						.owner = machine };

	*node = (struct node){ .machine = machine, .rank_count = plan->rank_count, .first = plan->first };
	memcpy(node->gpu_of_rank, plan->gpu_of_rank, sizeof(node->gpu_of_rank));
	if (!nccl_open(&node->nccl, &library))
		fail_msg("%s", library.problem);
	options.member_count = communicator_map(plan->gpu_of_rank, plan->rank_count, node->member_of_rank);
	options.local_count = node->count = plan->count ? plan->count : options.member_count;
	options.nccl = options.member_count > 1 || plan->has_nccl ? &node->nccl : NULL;
	options.staging_bytes = plan->staging_bytes ? plan->staging_bytes : PLENTY;
	if (plan->has_no_staging)
		options.staging_bytes = 0;
	if (plan->id)
		options.id = *plan->id;
	else if (options.nccl)
		assert_int_equal(communicator_make_id(&node->nccl, &options.id, problem, sizeof(problem)), 0);
	make_members(node, options.staging_bytes, members);
	return communicator_new(&options, node->now_ns, &node->communicator);
}

static bool is_over(const struct node *node)
{
	enum communicator_state state = communicator_state(node->communicator);

	return state == COMMUNICATOR_CLOSED || state == COMMUNICATOR_ABORTED;
}

void nodes_poll(struct node *nodes, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		communicator_poll(nodes[i].communicator, nodes[i].now_ns);
	clock_sleep_ns(10000);
}

void node_free(struct node *node)
{
	communicator_abort(node->communicator, "the test is over");
	while (!is_over(node))
		nodes_poll(node, 1);
	assert_null(communicator_free(node->communicator));
}

void nodes_await(struct node *nodes, unsigned count, enum communicator_state state)
{
	while (communicator_state(nodes[0].communicator) != state)
		nodes_poll(nodes, count);
}

void nodes_await_done(struct node *nodes, unsigned count, const struct trial *trial)
{
	for (unsigned rank = 0; rank < nodes[0].rank_count; rank++)
		while (trial->asked[rank].is_asked && trial->asked[rank].done == 0)
			nodes_poll(nodes, count);
}

/* ---- Trials ---- */

static int on_before(struct communicator_request *request, void *stream)
{
	container_of(request, struct asked, request)->before++;
	return 0;
}

static int on_after(struct communicator_request *request, void *stream)
{
	container_of(request, struct asked, request)->after++;
	return 0;
}

static void on_done(struct communicator_request *request, int status)
{
	struct asked *asked = container_of(request, struct asked, request);

	asked->done++;
	asked->status = status;
	if (asked->then)
		asked->then(asked);
}

static bool is_sum(const struct trial *trial)
{
	return trial->operation.kind == COMMUNICATOR_REDUCE_SCATTER ||
	       trial->operation.kind == COMMUNICATOR_ALL_REDUCE;
}

static void write_value(void *array, enum reduce_format format, uint64_t i, float value)
{
	if (format == REDUCE_FP32)
		((float *)array)[i] = value;
	else
		((uint16_t *)array)[i] =
			format == REDUCE_BF16 ? bfloat16_from_float(value) : float16_from_float(value);
}

/* What a rank has of a sum before: the piece, or all of it. */
static void copy_before(struct trial *trial, unsigned rank)
{
	const float *before = (const float *)trial->expected;
	struct communicator_request *request = &trial->asked[rank].request;
	bool is_whole = trial->operation.kind == COMMUNICATOR_ALL_REDUCE;
	uint64_t first = is_whole ? 0 : trial->bounds[rank];
	uint64_t end = is_whole ? request->count : trial->bounds[rank + 1];

	memcpy(request->sum, before + first, (end - first) * sizeof(float));
}

static void fill_sum(struct trial *trial, struct node *node, unsigned rank)
{
	enum reduce_format format = trial->operation.format;
	struct communicator_request *request = &trial->asked[rank].request;
	unsigned gpu = node->gpu_of_rank[rank];
	void *contribution =
		machine_allocate(node->machine, gpu, request->count * reduce_element_bytes(format));

	for (uint64_t i = 0; i < request->count; i++)
		write_value(contribution, format, i, random_ordinary(1));
	request->contribution = contribution;
	request->sum = machine_allocate(node->machine, gpu, request->count * sizeof(float));
	copy_before(trial, rank);
}

static void fill_array(struct trial *trial, struct node *node, unsigned rank)
{
	struct communicator_request *request = &trial->asked[rank].request;
	bool is_root = rank == trial->operation.root;
	bool is_broadcast = trial->operation.kind == COMMUNICATOR_BROADCAST;
	uint64_t first = is_broadcast ? 0 : trial->bounds[rank];
	uint64_t end = is_broadcast ? (is_root ? request->count : 0) : trial->bounds[rank + 1];

	request->array = machine_allocate(node->machine, node->gpu_of_rank[rank], request->count);
	memset(request->array, POISON, request->count);
	memcpy((char *)request->array + first, trial->expected + first, end - first);
}

void trial_new(struct trial *trial, struct node *node, uint64_t sequence, enum communicator_kind kind,
	       enum reduce_format format, uint64_t count)
{
	memset(trial, 0, sizeof(*trial));
	trial->operation = (struct communicator_operation){ .sequence = sequence,
							    .kind = kind,
							    .name = "layer 7",
							    .bounds = trial->bounds,
							    .format = format,
							    .root = node->rank_count - 1,
							    .is_absent = trial->absent };
	for (unsigned rank = 0; rank <= node->rank_count; rank++)
		trial->bounds[rank] = count * rank / node->rank_count;
	trial->expected = allocate(is_sum(trial) ? count * sizeof(float) : count);
	for (uint64_t i = 0; i < count; i++) {
		if (is_sum(trial))
			((float *)trial->expected)[i] = random_ordinary(1);
		else
			trial->expected[i] = (char)random_bits();
	}
	for (unsigned rank = 0; rank < node->rank_count; rank++) {
		trial->asked[rank].request = (struct communicator_request){
			.sequence = sequence,
			.kind = kind,
			.rank = rank,
			.count = count,
			.before = on_before,
			.after = on_after,
			.done = on_done,
		};
		if (is_sum(trial))
			fill_sum(trial, node, rank);
		else
			fill_array(trial, node, rank);
	}
}

void trial_free(struct trial *trial)
{
	free(trial->expected);
}

int trial_announce(struct trial *trial, struct node *node)
{
	return communicator_announce(node->communicator, &trial->operation);
}

/* By the processor. */
static void add_expected(struct trial *trial, unsigned rank_count)
{
	const struct communicator_request *request = &trial->asked[0].request;
	const void *contributions[MACHINE_RANKS] = { NULL };

	for (unsigned rank = 0; rank < rank_count; rank++)
		if (!trial->absent[rank])
			contributions[rank] = trial->asked[rank].request.contribution;
	reduce_sum_kernel(simd_level(), trial->operation.format)((float *)trial->expected, request->is_added,
								 contributions, rank_count, request->count);
}

void trial_ask(struct trial *trial, struct node *node)
{
	if (is_sum(trial) && !trial->is_expected)
		add_expected(trial, node->rank_count);
	trial->is_expected = true;
	for (unsigned rank = 0; rank < node->rank_count; rank++)
		if (is_here(node, rank)) {
			trial->asked[rank].is_asked = true;
			assert_int_equal(communicator_ask(node->communicator, &trial->asked[rank].request),
					 0);
		}
}

void trial_assert_good(const struct trial *trial, const struct node *node)
{
	for (unsigned rank = 0; rank < node->rank_count; rank++) {
		const struct asked *asked = &trial->asked[rank];
		const struct communicator_request *request = &asked->request;
		bool is_piece = request->kind == COMMUNICATOR_REDUCE_SCATTER;
		size_t each = is_sum(trial) ? sizeof(float) : 1;
		uint64_t first = is_piece ? trial->bounds[rank] : 0;
		uint64_t end = is_piece ? trial->bounds[rank + 1] : request->count;

		if (!asked->is_asked)
			continue;
		assert_int_equal(asked->status, 0);
		assert_int_equal(asked->done, 1);
		assert_int_equal(asked->before, 1);
		assert_int_equal(asked->after, 1);
		assert_memory_equal(is_sum(trial) ? (void *)request->sum : request->array,
				    trial->expected + first * each, (end - first) * each);
	}
}

void trial_assert_failed(const struct trial *trial, const struct node *node, int status)
{
	for (unsigned rank = 0; rank < node->rank_count; rank++) {
		const struct asked *asked = &trial->asked[rank];

		assert_int_equal(asked->done, asked->is_asked);
		if (asked->is_asked)
			assert_int_equal(asked->status, status);
	}
}

/* ---- Failures ---- */

void node_assert_says(const struct node *node, const char *text)
{
	if (!strstr(communicator_problem(node->communicator), text))
		fail_msg("\"%s\" does not say \"%s\"", communicator_problem(node->communicator), text);
}

void machine_assert_works(struct machine *machine, const struct node_plan *plan)
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
