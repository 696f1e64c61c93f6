/* Gradients that several GPUs sum together, where a rank dies, or something fails or hangs: no gradient is
 * lost while the epoch goes on, and nobody waits for what may never come back. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "daemon/gradients/own.h"
#include "offload/cuda/gpu_private.h"
#include "tests/lib/gpu/cuda_calls.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/gpu/gpu_crew.h"
#include "tests/unit/test.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, crew_setup, crew_teardown)

static void await_quiet(const struct job *job)
{
	while (!gradients_are_quiet(job))
		scene_wait(&scene);
}

/* In the middle of a sum of several rounds; and of the first round of one. */
static void where_nccl_fails_all_come_home(void **state)
{
	static const char *const failures[] = { "asynchronous#2=6", "asynchronous#9=6" };

	for (size_t i = 0; i < ARRAY_LENGTH(failures); i++) {
		struct job *job = crew_play(&crew_pair);
		uint64_t summed;

		crew_push_all(BOTH, 0);
		summed = gpu_summed_bytes(job);
		assert_int_equal(summed, 2 * crew_bytes(BOTH));
		standin_tell("STANDIN_FAILURES", failures[i]);
		crew_push_all(BOTH, 1);
		standin_tell("STANDIN_FAILURES", NULL);
		crew_expect(BOTH, 2);
		crew_await(EXCHANGE_BROKEN);
		/* Until the epoch ends. */
		crew_push_all(BOTH, 2);
		crew_expect(BOTH, 3);
		assert_int_equal(gpu_summed_bytes(job), summed);
		assert_int_equal(job->members.count, 2);
		if (i == 0) {
			(void)crew_teardown(state);
			assert_int_equal(crew_setup(state), 0);
		}
	}
}

static void where_a_kernel_fails_all_come_home(void **state)
{
	struct job *job = crew_play(&crew_pair);

	standin_tell("STANDIN_FAILURES", "cuLaunchKernel=1");
	crew_push_all(BOTH, 0);
	standin_tell("STANDIN_FAILURES", NULL);
	crew_expect(BOTH, 1);
	assert_int_equal(gpu_summed_bytes(job), 0);
	crew_await(EXCHANGE_BROKEN);
}

/* The exchange goes on, and sums no more. */
static void where_a_sum_cannot_be_copied_all_come_home(void **state)
{
	struct job *job = crew_play(&crew_pair);

	standin_tell("STANDIN_FAILURES", "cuMemcpyAsync#2=1");
	crew_push_all(BOTH, 0);
	standin_tell("STANDIN_FAILURES", NULL);
	crew_expect(BOTH, 1);
	crew_push_all(BOTH, 1);
	crew_expect(BOTH, 2);
	assert_int_equal(gpu_summed_bytes(job), 0);
	assert_int_equal(crew_exchange()->state, EXCHANGE_READY);
	assert_int_equal(job->members.count, 2);
}

static void expect_stale(unsigned rank, uint32_t number, const char *problem)
{
	const struct answer *answer = actor_await(&crew_actors[rank], number, 0);

	assert_int_equal(answer->status, -ESTALE);
	if (!strstr(answer->reply->status->message, problem))
		fail_msg("\"%s\" does not say \"%s\"", answer->reply->status->message, problem);
}

static bool is_under_way(enum gpu_round_state state)
{
	for (unsigned i = 0; i < GPU_ROUNDS; i++)
		if (crew_exchange()->rounds[i].state == state)
			return true;
	return false;
}

/* Both ranks have pushed, and rounds are exchanged. */
static void push_held(uint32_t numbers[2])
{
	standin_hold(true);
	for (unsigned rank = 0; rank < 2; rank++)
		numbers[rank] = crew_push(rank, BOTH, 0);
	while (!is_under_way(ROUND_EXCHANGING))
		scene_wait(&scene);
}

/* Rank 1 has died. */
static void begin_again(struct job *job)
{
	uint64_t before = gpu_summed_bytes(job);

	crew_enter(1);
	crew_get_ready();
	crew_attach(1);
	crew_learn_order();
	crew_await(EXCHANGE_READY);
	crew_push_all(BOTH, 0);
	crew_expect(BOTH, 1);
	assert_int_equal(gpu_summed_bytes(job) - before, 2 * crew_bytes(BOTH));
}

static void what_is_being_summed_is_void_when_a_rank_dies(void **state)
{
	struct job *job = crew_play(&crew_pair);
	uint32_t numbers[2];

	push_held(numbers);
	actor_die(&crew_actors[1]);
	expect_stale(0, numbers[0], "rank 1");
	assert_false(gradients_are_quiet(job));
	standin_hold(false);
	await_quiet(job);
	assert_false(gradient_has_content(job, BOTH));
	crew_await(EXCHANGE_NONE);
	begin_again(job);
}

/* As if it had left just before the sum was there. */
static void nothing_is_written_to_buffers_that_are_a_rank_s_own_again(void **state)
{
	struct job *job = crew_play(&crew_pair);
	struct gpu_rank *rank = crew_rank(1);
	uint32_t numbers[2];

	push_held(numbers);
	rank->gradients.state = GRADIENTS_UNPINNING;
	standin_hold(false);
	expect_stale(0, numbers[0], "has no gradient buffers on a GPU");
	rank->gradients.state = GRADIENTS_OPEN;
	await_quiet(job);
	assert_int_equal(gpu_summed_bytes(job), 0);
}

static void what_waits_is_void_when_a_rank_dies(void **state)
{
	struct job *job = crew_play(&crew_pair);
	uint32_t number = crew_push(0, BOTH, 0);

	crew_await_complete(job);
	actor_die(&crew_actors[1]);
	expect_stale(0, number, "rank 1");
	await_quiet(job);
	begin_again(job);
}

/* Its rank alone may find its buffers changed. */
static void a_gpu_that_is_lost_in_a_copy_has_its_rank_sent_away(void **state)
{
	struct job *job;
	uint32_t numbers[2];
	unsigned gone = 0;

	/* A copy fails after it has begun. */
	standin_tell("STANDIN_DELAY_US", "20000");
	job = crew_play(&crew_pair);
	standin_tell("STANDIN_FAILURES", "copy#1=700");
	/* In one round: nothing of NCCL's is on the streams then. */
	for (unsigned rank = 0; rank < 2; rank++)
		numbers[rank] = crew_push(rank, HALVES, 0);
	for (unsigned rank = 0; rank < 2; rank++)
		expect_stale(rank, numbers[rank], "has gradient buffers that a GPU may still write to");
	for (unsigned rank = 0; rank < 2; rank++)
		gone += job->members.ranks[rank] == NULL;
	assert_int_equal(gone, 1);
	await_quiet(job);
	crew_await(EXCHANGE_NONE);
}

static void await_broken(void)
{
	scene.node->settings.gpu_exchange_seconds = 1;
	while (crew_exchange()->state != EXCHANGE_BROKEN) {
		usleep(1000);
		gpu_check_engines(scene.node);
	}
}

/* The GPUs' memory for sums is NCCL's, until it is back. */
static void nobody_waits_for_nccl_that_does_not_return(void **state)
{
	struct job *job = crew_play(&crew_pair);
	struct gpu_rank *gone;
	uint32_t numbers[2][UNITS];

	crew_push_all(BOTH, 0);
	gpu_peer_block("ncclGroupEnd,ncclCommAbort");
	/* A sum under way, and one that waits for it. */
	for (unsigned rank = 0; rank < 2; rank++) {
		numbers[rank][BOTH] = crew_push(rank, BOTH, 1);
		numbers[rank][HALVES] = crew_push(rank, HALVES, 0);
	}
	while (job->gradients->reductions_running < 2)
		scene_wait(&scene);
	gpu_peer_await_blocked();
	await_broken();
	for (unsigned rank = 0; rank < 2; rank++)
		for (uint32_t unit = 0; unit < UNITS; unit++)
			assert_int_equal(crew_result(rank, numbers[rank][unit]), 0);
	crew_expect(HALVES, 1);
	crew_expect(BOTH, 2);
	assert_int_equal(gpu_summed_bytes(job), 2 * crew_bytes(BOTH));
	assert_true(is_under_way(ROUND_EXCHANGING));
	/* What is pushed is copied, and nobody is sent away. */
	crew_push_all(BOTH, 2);
	crew_expect(BOTH, 3);
	assert_int_equal(job->members.count, 2);
	/* What it may still read is there, also when a rank has gone. */
	gone = crew_rank(1);
	actor_die(&crew_actors[1]);
	while (gone->draining != GPU_HAS_DRAINED)
		scene_wait(&scene);
	assert_int_equal(gone->gradients.state, GRADIENTS_CLOSED);
	gpu_peer_unblock();
	while (is_under_way(ROUND_EXCHANGING))
		scene_wait(&scene);
	crew_await(EXCHANGE_NONE);
	scene.node->settings.gpu_exchange_seconds = 60;
	begin_again(job);
}

/* With copies on their way. */
static void nobody_waits_for_a_driver_that_hangs(void **state)
{
	struct job *job = crew_play(&crew_pair);

	gpu_peer_block("cuMemcpyAsync");
	for (unsigned rank = 0; rank < 2; rank++)
		crew_push(rank, BOTH, 0);
	while (crew_exchange()->rounds[0].moving < 2 || crew_exchange()->rounds[1].moving < 1)
		scene_wait(&scene);
	gpu_peer_await_blocked();
	for (unsigned rank = 0; rank < 2; rank++)
		atomic_store(&crew_rank(rank)->tier->gpu->engine->at_work_since_ns, 1);
	gpu_check_engines(scene.node);
	assert_true(gradients_are_quiet(job));
	assert_int_equal(job->members.count, 0);
	for (unsigned rank = 0; rank < 2; rank++)
		assert_int_equal(actor_outstanding(&crew_actors[rank]), 0);
	/* What they may still write to is there. */
	assert_false(queue_is_empty(&job->members.lingering));
	gpu_peer_unblock();
	while (!queue_is_empty(&job->members.lingering))
		scene_wait(&scene);
}

static struct gpu_memory plug;
static bool is_plug_done;

static void note_plug(struct gpu_request *request, int status)
{
	is_plug_done = status == 0;
}

/* In a call that nobody else makes, so that other GPUs go on. */
static void hang(struct gpu_engine *engine)
{
	plug = (struct gpu_memory){ .request.done = note_plug, .bytes = 1, .fd = -1 };
	is_plug_done = false;
	gpu_memory_create(engine, &plug);
	while (!is_plug_done)
		scene_wait(&scene);
	is_plug_done = false;
	gpu_peer_block("cuMemUnmap");
	gpu_engine_hurry(engine, UINT_MAX);
	gpu_memory_destroy(engine, &plug);
	gpu_peer_await_blocked();
}

/* What the GPU that does not hang has of them is there. */
static bool are_rounds_stuck(void)
{
	for (unsigned i = 0; i < GPU_ROUNDS; i++)
		if (crew_exchange()->rounds[i].state != ROUND_COPYING ||
		    crew_exchange()->rounds[i].moving > 1)
			return false;
	return true;
}

/* The rank comes back on another GPU. */
static void nobody_waits_for_rounds_that_a_driver_keeps(void **state)
{
	static const struct crew others = { .ranks = 2, .stage = 2, .gpus = { 0, 2 } };
	struct job *job = crew_play(&crew_pair);
	struct gpu_engine *engine = crew_rank(1)->tier->gpu->engine;
	uint32_t numbers[2];

	push_held(numbers);
	hang(engine);
	standin_hold(false);
	while (!are_rounds_stuck())
		scene_wait(&scene);
	gpu_engine_hurry(engine, 0);
	gpu_check_engines(scene.node);
	assert_null(job->members.ranks[1]);
	actor_die(&crew_actors[1]);
	crew = &others;
	crew_enter(1);
	crew_get_ready();
	crew_attach(1);
	crew_learn_order();
	crew_await(EXCHANGE_READY);
	assert_true(are_rounds_stuck());
	crew_push_all(BOTH, 0);
	crew_expect(BOTH, 1);
	assert_int_equal(gpu_summed_bytes(job), 0);
	/* And when it has come back they serve again. */
	gpu_peer_unblock();
	while (is_under_way(ROUND_COPYING) || !is_plug_done)
		scene_wait(&scene);
	crew_push_all(BOTH, 1);
	crew_expect(BOTH, 2);
	assert_int_equal(gpu_summed_bytes(job), 2 * crew_bytes(BOTH));
}

/* As if the next epoch had begun before anybody had looked at the exchange. */
static void gpus_sum_nothing_by_an_exchange_of_another_epoch(void **state)
{
	struct job *job = crew_play(&crew_pair);

	assert_true(gpu_can_sum(job));
	crew_exchange()->epoch--;
	assert_false(gpu_can_sum(job));
	crew_exchange()->epoch++;
	assert_true(gpu_can_sum(job));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(where_nccl_fails_all_come_home),
		TEST(where_a_kernel_fails_all_come_home),
		TEST(where_a_sum_cannot_be_copied_all_come_home),
		TEST(what_is_being_summed_is_void_when_a_rank_dies),
		TEST(nothing_is_written_to_buffers_that_are_a_rank_s_own_again),
		TEST(what_waits_is_void_when_a_rank_dies),
		TEST(a_gpu_that_is_lost_in_a_copy_has_its_rank_sent_away),
		TEST(nobody_waits_for_nccl_that_does_not_return),
		TEST(nobody_waits_for_a_driver_that_hangs),
		TEST(nobody_waits_for_rounds_that_a_driver_keeps),
		TEST(gpus_sum_nothing_by_an_exchange_of_another_epoch),
	};

	if (argc > 1)
		return gpu_peer_run(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
