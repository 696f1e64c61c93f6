/* A communicator with the real NCCL: two ranks that share the first GPU, which are its one member. NCCL takes
 * no two members on a GPU, so all between two waits for a machine with several. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "collectives/cuda/sum.h"
#include "collectives/nccl/communicator.h"
#include "common/clock.h"
#include "common/float16.h"
#include "tests/gpu/gpu_place.h"
#include "tests/gpu/hardware.h"
#include "tests/unit/kernel_support.h"
#include "tests/unit/test.h"

#define RANKS 2
#define COUNT 100001
/* Of the first rank: the second's piece begins where no group of elements is aligned. */
#define FIRST 33335
#define STAGING ((size_t)1 << 20)
#define SECOND UINT64_C(1000000000)

static struct nccl nccl;

/* ---- What the owner of the GPU does: at once, so that it is done when what follows is begun ---- */

static struct driver_stream *stream;

static int use(void *owner, int gpu)
{
	return 0;
}

static int copy(void *owner, int gpu, void *on, void *to, const void *from, size_t bytes)
{
	hardware_expect(hardware_driver.copy((uintptr_t)to, (uintptr_t)from, bytes, on));
	return 0;
}

static int sum_on_gpu(void *owner, int gpu, void *on, const struct communicator_sum *sum)
{
	struct sum_arguments with = {
		.sum = sum->sum, .count = sum->count, .rank_count = sum->rank_count, .is_added = sum->is_added
	};

	memcpy(with.contributions, sum->contributions, sum->rank_count * sizeof(*with.contributions));
	hardware_expect(hardware_driver.stream_synchronize(on));
	place_run(sum_kernel(sum->format), &with, sum_blocks(sum->count), SUM_THREADS);
	return 0;
}

static int mark(void *owner, int gpu, void *on, uint64_t *ret_mark)
{
	hardware_expect(hardware_driver.stream_synchronize(on));
	*ret_mark = 0;
	return 0;
}

static int is_past(void *owner, int gpu, uint64_t number)
{
	return 1;
}

static const struct communicator_gpu_ops ops = {
	.use = use, .copy = copy, .sum = sum_on_gpu, .mark = mark, .is_past = is_past
};

/* ---- The communicator ---- */

static void await(struct communicator *communicator, enum communicator_state state)
{
	while (communicator_state(communicator) != state) {
		communicator_poll(communicator, clock_now_ns());
		if (communicator_state(communicator) == COMMUNICATOR_ABORTED && state != COMMUNICATOR_ABORTED)
			fail_msg("%s", communicator_problem(communicator));
		clock_sleep_ns(100000);
	}
}

static struct communicator *create(void)
{
	static const unsigned member_of_rank[RANKS] = { 0, 0 };
	struct communicator_member member = { .stream = stream, .staging = place_allocate(STAGING) };
	struct communicator_options options = { .job = "gpt",
						.nccl = &nccl,
						.rank_count = RANKS,
						.member_count = 1,
						.member_of_rank = member_of_rank,
						.local_count = 1,
						.members = &member,
						.staging_bytes = STAGING,
						.creation_timeout_ns = 60 * SECOND,
						.operation_timeout_ns = 60 * SECOND,
						.ops = &ops };
	struct communicator *communicator;
	char problem[256];

	if (communicator_make_id(&nccl, &options.id, problem, sizeof(problem)) < 0)
		fail_msg("%s", problem);
	assert_int_equal(communicator_new(&options, clock_now_ns(), &communicator), 0);
	await(communicator, COMMUNICATOR_READY);
	return communicator;
}

static void end(struct communicator *communicator)
{
	assert_int_equal(communicator_close(communicator, clock_now_ns()), 0);
	await(communicator, COMMUNICATOR_CLOSED);
	assert_null(communicator_free(communicator));
}

static unsigned done;

static void note(struct communicator_request *request, int status)
{
	assert_int_equal(status, 0);
	done++;
}

static void combine(struct communicator *communicator, enum communicator_kind kind, uint64_t sequence,
		    struct communicator_request requests[RANKS])
{
	static const uint64_t bounds[RANKS + 1] = { 0, FIRST, COUNT };
	const struct communicator_operation operation = {
		.sequence = sequence, .kind = kind, .name = "layer 7", .bounds = bounds, .format = REDUCE_BF16
	};

	done = 0;
	assert_int_equal(communicator_announce(communicator, &operation), 0);
	for (unsigned rank = 0; rank < RANKS; rank++) {
		requests[rank].sequence = sequence;
		requests[rank].kind = kind;
		requests[rank].rank = rank;
		requests[rank].count = COUNT;
		requests[rank].done = note;
		assert_int_equal(communicator_ask(communicator, &requests[rank]), 0);
	}
	while (done < RANKS) {
		communicator_poll(communicator, clock_now_ns());
		if (communicator_state(communicator) != COMMUNICATOR_READY)
			fail_msg("%s", communicator_problem(communicator));
	}
}

/* ---- Tests ---- */

static void pieces_are_gathered(void **state)
{
	struct communicator *communicator = create();
	struct communicator_request requests[RANKS] = { 0 };
	static unsigned char found[COUNT];

	for (unsigned rank = 0; rank < RANKS; rank++) {
		memset(found, (int)rank + 1, COUNT);
		requests[rank].array = place_allocate(COUNT);
		place_write(requests[rank].array, found, COUNT);
	}
	printf("asked: ncclCommRegister of memory of cuMemAlloc: %s\n",
	       strerror(-communicator_register(communicator, 0, requests[0].array, COUNT)));
	combine(communicator, COMMUNICATOR_ALL_GATHER, 0, requests);
	for (unsigned rank = 0; rank < RANKS; rank++) {
		place_read(found, requests[rank].array, COUNT);
		for (size_t i = 0; i < COUNT; i++)
			assert_int_equal(found[i], i < FIRST ? 1 : 2);
	}
	end(communicator);
}

static void sums_have_the_bits_of_the_processor(void **state)
{
	static uint16_t contributions[RANKS][COUNT];
	static float expected[COUNT], found[COUNT];
	const void *all[RANKS] = { contributions[0], contributions[1] };
	struct communicator *communicator = create();
	struct communicator_request requests[RANKS] = { 0 };

	for (unsigned rank = 0; rank < RANKS; rank++) {
		for (size_t i = 0; i < COUNT; i++)
			contributions[rank][i] = bfloat16_from_float(random_ordinary(1));
		requests[rank].contribution = place_allocate(sizeof(contributions[rank]));
		place_write((void *)requests[rank].contribution, contributions[rank],
			    sizeof(contributions[rank]));
		requests[rank].sum = place_allocate(sizeof(found));
	}
	reduce_sum_kernel(simd_level(), REDUCE_BF16)(expected, false, all, RANKS, COUNT);
	combine(communicator, COMMUNICATOR_ALL_REDUCE, 0, requests);
	for (unsigned rank = 0; rank < RANKS; rank++) {
		place_read(found, requests[rank].sum, sizeof(found));
		assert_memory_equal(found, expected, sizeof(found));
	}
	end(communicator);
}

static void one_that_was_aborted_is_followed_by_another(void **state)
{
	struct communicator *communicator = create();

	communicator_abort(communicator, "the epoch is over");
	await(communicator, COMMUNICATOR_ABORTED);
	assert_null(communicator_free(communicator));
	end(create());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_are_gathered),
		cmocka_unit_test(sums_have_the_bits_of_the_processor),
		cmocka_unit_test(one_that_was_aborted_is_followed_by_another),
	};
	struct dynamic_library library = { 0 };
	const char *why = place_open();

	if (!why && !nccl_open(&nccl, &library))
		why = library.problem;
	if (why) {
		printf("skipped: %s\n", why);
		return 77;
	}
	hardware_expect(hardware_driver.stream_create(&stream, DRIVER_NO_STREAM_0));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
