/* The thread that drives communicators, by the stand-ins for the driver and NCCL: what it is given comes back
 * once, in whatever way it ends. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "collectives/cuda/sum.h"
#include "daemon/gpu/exchange_thread.h"
#include "tests/lib/gpu/nccl_calls.h"
#include "tests/unit/cuda/gpu_support.h"

#define RANKS 3
#define BYTES 3000
#define MEMORY (64 << 10)

static struct gpu_fixture fixture;
static struct gpu_memory memories[2];
static struct exchange_thread *thread;

static int set_up(void **state)
{
	gpu_fixture_open(&fixture);
	standin_tell("STANDIN_NCCL", NULL);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(gpu_memory_create_now(fixture.engines[i], &memories[i], MEMORY), 0);
	assert_int_equal(exchange_thread_new(&thread), 0);
	return 0;
}

static int tear_down(void **state)
{
	assert_null(exchange_thread_free(thread));
	assert_int_equal(standin_members(), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(gpu_memory_destroy_now(fixture.engines[i], &memories[i]), 0);
	gpu_fixture_close(&fixture);
	return 0;
}

static void reap(void)
{
	struct pollfd results = { .fd = exchange_thread_fd(thread), .events = POLLIN };

	assert_int_equal(poll(&results, 1, 60000), 1);
	exchange_thread_reap(thread);
}

/* ---- A group ---- */

static struct {
	unsigned ready, failed, ended;
	char problem[768];
} heard;

static void on_ready(struct exchange_group *group)
{
	assert_int_equal(heard.failed + heard.ended, 0);
	heard.ready++;
}

static void on_failed(struct exchange_group *group, const char *problem)
{
	assert_int_equal(heard.ended, 0);
	heard.failed++;
	strcpy(heard.problem, problem);
}

static void on_ended(struct exchange_group *group)
{
	heard.ended++;
}

/* Two ranks share the first GPU. */
static const unsigned member_of_rank[RANKS] = { 0, 0, 1 };
static struct exchange_group group;
static struct driver_function *functions[2][REDUCE_FORMATS]; /* kernels, for sums */

/* staging: where its memory for sums begins in that of each GPU. */
static void begin_with(uint64_t timeout_ns, uint64_t staging, size_t staging_bytes)
{
	memset(&heard, 0, sizeof(heard));
	group = (struct exchange_group){ .job = "gpt",
					 .epoch = 3,
					 .rank_count = RANKS,
					 .member_count = 2,
					 .member_of_rank = member_of_rank,
					 .staging_bytes = staging_bytes,
					 .timeout_ns = timeout_ns,
					 .ready = on_ready,
					 .failed = on_failed,
					 .ended = on_ended };
	for (unsigned i = 0; i < 2; i++)
		group.members[i] = (struct exchange_member){ .gpu = i,
							     .engine = fixture.engines[i],
							     .memory = memories[i].address,
							     .bytes = memories[i].bytes,
							     .staging = memories[i].address + staging,
							     .sums = functions[i] };
	exchange_begin(thread, &group);
}

static void begin(uint64_t timeout_ns)
{
	begin_with(timeout_ns, 0, 0);
}

#define LONG UINT64_C(60000000000)

static void end(void)
{
	exchange_end(&group);
	while (!heard.ended)
		reap();
}

/* ---- Operations ---- */

struct played {
	struct exchange_operation operation;
	struct communicator_request requests[RANKS];
	unsigned done;
	int status;
};

static void on_done(struct exchange_operation *operation, int status)
{
	struct played *played = container_of(operation, struct played, operation);

	assert_int_equal(heard.ended, 0);
	played->done++;
	played->status = status;
}

static void submit(struct played *played, enum communicator_kind kind)
{
	static const uint64_t bounds[RANKS + 1] = { 0, 1000, 1000, BYTES };

	*played =
		(struct played){ .operation = { .group = &group,
						.what = { .kind = kind, .name = "layer 7", .bounds = bounds },
						.requests = played->requests,
						.done = on_done } };
	for (unsigned rank = 0; rank < RANKS; rank++)
		played->requests[rank].array = (void *)(uintptr_t)memories[member_of_rank[rank]].address;
	exchange_submit(&played->operation);
}

static int await(struct played *played)
{
	while (!played->done)
		reap();
	assert_int_equal(played->done, 1);
	return played->status;
}

/* ---- Tests ---- */

static void parts_of_several_gpus_come_together(void **state)
{
	unsigned char *arrays[2];
	struct played first, second;

	for (unsigned i = 0; i < 2; i++) {
		arrays[i] = (unsigned char *)(uintptr_t)memories[i].address;
		memset(arrays[i], (int)i + 1, BYTES);
	}
	begin(LONG);
	/* Also before it is ready. */
	submit(&first, COMMUNICATOR_ALL_GATHER);
	submit(&second, COMMUNICATOR_ALL_GATHER);
	assert_int_equal(await(&first), 0);
	assert_int_equal(await(&second), 0);
	assert_int_equal(heard.ready, 1);
	for (unsigned i = 0; i < BYTES; i++) {
		assert_int_equal(arrays[0][i], i < 1000 ? 1 : 2);
		assert_int_equal(arrays[1][i], i < 1000 ? 1 : 2);
	}
	end();
	assert_int_equal(heard.failed, 0);
	/* Another epoch has another one. */
	begin(LONG);
	while (!heard.ready)
		reap();
	end();
}

static void what_cannot_be_made_says_why_and_does_nothing(void **state)
{
	static const struct {
		const char *failures, *version, *problem;
	} cases[] = {
		{ "ncclGetUniqueId=2", NULL, "ncclGetUniqueId: " },
		{ "ncclCommInitRankConfig=5", NULL, "ncclCommInitRankConfig on GPU 0 (ranks 0, 1): " },
		{ "cuStreamCreate=2", NULL, "GPU 0 (stand-in) has no stream for that: " },
		{ "cuEventCreate#100=2", NULL, "GPU 1 (stand-in) has no stream for that: " },
		{ "asynchronous=3", NULL, "NCCL has failed" },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		struct played played;

		standin_tell("STANDIN_FAILURES", cases[i].failures);
		begin(LONG);
		while (!heard.failed)
			reap();
		standin_tell("STANDIN_FAILURES", NULL);
		if (!strstr(heard.problem, cases[i].problem))
			fail_msg("%s: %s", cases[i].failures, heard.problem);
		submit(&played, COMMUNICATOR_ALL_GATHER);
		assert_int_equal(await(&played), -ECANCELED);
		end();
		assert_int_equal(heard.ready, 0);
		assert_int_equal(heard.failed, 1);
	}
}

/* The library is looked for again by each group, until it is found. */
static void another_version_of_nccl_is_refused(void **state)
{
	standin_tell("STANDIN_NCCL", "21804");
	begin(LONG);
	while (!heard.failed)
		reap();
	assert_non_null(strstr(heard.problem, "NCCL cannot be used: "));
	assert_non_null(strstr(heard.problem, "needs 2.19.0 or newer"));
	end();
	standin_tell("STANDIN_NCCL", NULL);
	begin(LONG);
	while (!heard.ready)
		reap();
	end();
}

static void what_fails_in_the_middle_is_told_after_its_operations(void **state)
{
	struct played first, second;

	begin(LONG);
	while (!heard.ready)
		reap();
	standin_tell("STANDIN_FAILURES", "asynchronous#3=6");
	submit(&first, COMMUNICATOR_ALL_GATHER);
	assert_true(await(&first) <= 0);
	while (!heard.failed)
		reap();
	standin_tell("STANDIN_FAILURES", NULL);
	assert_non_null(strstr(heard.problem, "another member has ended"));
	submit(&second, COMMUNICATOR_ALL_GATHER);
	assert_int_equal(await(&second), -ECANCELED);
	end();
}

/* 7: it is still in progress. */
static void what_is_not_done_in_time_fails(void **state)
{
	standin_tell("STANDIN_FAILURES", "asynchronous=7");
	begin(1000000);
	while (!heard.failed)
		reap();
	assert_non_null(strstr(heard.problem, "have not found one another"));
	end();
	standin_tell("STANDIN_FAILURES", NULL);
}

static void whatever_it_is_at_it_ends(void **state)
{
	struct played played[3];

	begin(LONG);
	exchange_end(&group);
	while (!heard.ended)
		reap();
	begin(LONG);
	for (unsigned i = 0; i < 3; i++)
		submit(&played[i], COMMUNICATOR_ALL_GATHER);
	end();
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(played[i].done, 1);
		assert_true(played[i].status == 0 || played[i].status == -ECANCELED);
	}
	assert_int_equal(heard.failed, 0);
}

/* ---- Sums ---- */

#define ELEMENTS 700 /* of each rank's piece; a window has some of them */
#define WINDOW_FIRST 100
#define WINDOW_COUNT 500
#define PARTS_BYTES 4096 /* where each rank's contribution begins, and its sum, and the staging memory */

static struct gpu_kernels kernels[2];

static void load_kernels(void)
{
	for (unsigned i = 0; i < 2; i++) {
		kernels[i] = (struct gpu_kernels){ .image = sum_image(),
						   .count = REDUCE_FORMATS,
						   .names = sum_names,
						   .functions = functions[i] };
		assert_int_equal(gpu_kernels_load_now(fixture.engines[i], &kernels[i]), 0);
	}
}

static float *place_of(unsigned rank, unsigned part)
{
	return (float *)(uintptr_t)(memories[member_of_rank[rank]].address +
				    (rank * 4 + part) * (uint64_t)PARTS_BYTES);
}

static float value_of(unsigned rank, unsigned element)
{
	return (float)(element % 13) * 0.25f + (float)rank;
}

/* Rank 1 contributes nothing, and gets its piece all the same. */
static void submit_sum(struct played *played)
{
	static const uint64_t bounds[RANKS + 1] = { 0, ELEMENTS, 2 * ELEMENTS, 3 * ELEMENTS };
	static const bool absent[RANKS] = { false, true, false };

	*played = (struct played){ .operation = { .group = &group,
						  .what = { .kind = COMMUNICATOR_REDUCE_SCATTER,
							    .name = "layer 7",
							    .bounds = bounds,
							    .format = REDUCE_FP32,
							    .is_absent = absent,
							    .window_first = WINDOW_FIRST,
							    .window_count = WINDOW_COUNT },
						  .requests = played->requests,
						  .done = on_done } };
	for (unsigned rank = 0; rank < RANKS; rank++) {
		for (unsigned i = 0; i < 3 * ELEMENTS; i++)
			place_of(rank, 0)[i] = value_of(rank, i);
		played->requests[rank].contribution = absent[rank] ? NULL : place_of(rank, 0);
		played->requests[rank].sum = place_of(rank, 3);
	}
	exchange_submit(&played->operation);
}

/* By the kernels that the GPUs' engines have loaded. */
static void each_rank_gets_its_piece_of_a_sum(void **state)
{
	struct played played;

	if (!sum_image())
		skip();
	load_kernels();
	begin_with(LONG, 12 * PARTS_BYTES, PARTS_BYTES / 2);
	submit_sum(&played);
	assert_int_equal(await(&played), 0);
	for (unsigned rank = 0; rank < RANKS; rank++)
		for (unsigned i = 0; i < WINDOW_COUNT; i++) {
			unsigned element = rank * ELEMENTS + WINDOW_FIRST + i;

			assert_true(place_of(rank, 3)[i] == value_of(0, element) + value_of(2, element));
		}
	/* One that a GPU does not take fails, and all after it. */
	standin_tell("STANDIN_FAILURES", "cuLaunchKernel=1");
	submit_sum(&played);
	assert_true(await(&played) < 0);
	while (!heard.failed)
		reap();
	standin_tell("STANDIN_FAILURES", NULL);
	assert_non_null(strstr(heard.problem, "cannot sum"));
	end();
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(gpu_kernels_unload_now(fixture.engines[i], &kernels[i]), 0);
}

static void sums_are_refused_without_memory_for_them(void **state)
{
	struct played played;

	begin(LONG);
	submit(&played, COMMUNICATOR_ALL_REDUCE);
	assert_int_equal(await(&played), -EOPNOTSUPP);
	submit(&played, COMMUNICATOR_ALL_GATHER);
	assert_int_equal(await(&played), 0);
	end();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(parts_of_several_gpus_come_together),
		TEST(what_cannot_be_made_says_why_and_does_nothing),
		TEST(another_version_of_nccl_is_refused),
		TEST(what_fails_in_the_middle_is_told_after_its_operations),
		TEST(what_is_not_done_in_time_fails),
		TEST(whatever_it_is_at_it_ends),
		TEST(each_rank_gets_its_piece_of_a_sum),
		TEST(sums_are_refused_without_memory_for_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
