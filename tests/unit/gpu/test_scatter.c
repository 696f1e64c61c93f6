/* Gradients that ranks push from several GPUs: when these sum them together, with which bits, and what is
 * copied to host memory instead. The stand-ins play GPUs and NCCL, with the kernels of a GPU as functions. */
#include "daemon/gradients/own.h"
#include "tests/lib/gpu/cuda_calls.h"
#include "tests/lib/gpu/nccl_calls.h"
#include "tests/unit/gpu/gpu_crew.h"
#include "tests/unit/test.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, crew_setup, crew_teardown)

/* ---- Sums ---- */

/* Two micro-batches of each unit. What comes to host memory is the sums alone. */
static void expect_sums(const struct crew *plan)
{
	struct job *job = crew_play(plan);
	uint64_t summed = 0, copied = 0;

	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (unsigned salt = 0; salt < 2; salt++) {
			crew_push_all(unit, salt);
			crew_expect(unit, salt + 1);
			summed += plan->ranks * crew_bytes(unit);
			copied += job->catalog.units[unit].trainable * sizeof(float);
			assert_int_equal(gpu_summed_bytes(job), summed);
			assert_int_equal(crew_copied_bytes(), copied);
		}
}

static void two_gpus_sum_what_a_rank_of_each_pushes(void **state)
{
	expect_sums(&crew_pair);
}

static void some_ranks_may_share_a_gpu(void **state)
{
	expect_sums(&(struct crew){ .ranks = 3, .stage = 3, .gpus = { 2, 0, 2 } });
}

static void four_gpus_sum_together(void **state)
{
	expect_sums(&(struct crew){ .ranks = 4, .stage = 3, .gpus = { 3, 1, 0, 2 } });
}

/* Two ranks' gradients in bf16 have the bytes of a sum. */
static void a_rank_that_closes_its_part_is_not_waited_for(void **state)
{
	struct job *job = crew_play(&(struct crew){ .ranks = 3, .stage = 2, .gpus = { 0, 1, 2 } });
	uint32_t numbers[CREW_RANKS];

	for (unsigned rank = 1; rank < 3; rank++)
		numbers[rank] = crew_push(rank, BOTH, 0);
	crew_await_complete(job);
	actor_send_step(&crew_actors[0], 0.1f);
	for (unsigned rank = 1; rank < 3; rank++)
		assert_int_equal(crew_result(rank, numbers[rank]), 0);
	crew_expect_from(1, BOTH, 1);
	assert_int_equal(gpu_summed_bytes(job), 2 * crew_bytes(BOTH));
}

/* More sums than rounds. */
static void what_comes_meanwhile_is_summed_after_it(void **state)
{
	struct job *job = crew_play(&crew_pair);
	uint32_t numbers[2][UNITS];

	standin_hold(true);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (unsigned rank = 0; rank < 2; rank++)
			numbers[rank][unit] = crew_push(rank, unit, 0);
	while (job->gradients->reductions_running < UNITS)
		scene_wait(&scene);
	standin_hold(false);
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		for (unsigned rank = 0; rank < 2; rank++)
			assert_int_equal(crew_result(rank, numbers[rank][unit]), 0);
		crew_expect(unit, 1);
	}
	assert_int_equal(gpu_summed_bytes(job), 2 * (crew_bytes(HALVES) + crew_bytes(BOTH)));
}

static void nccl_knows_the_memory_that_they_push_from(void **state)
{
	int others;

	crew_play(&crew_pair);
	others = standin_ranges();
	for (unsigned salt = 0; salt < 2; salt++) {
		crew_push_all(HALVES, salt);
		crew_expect(HALVES, salt + 1);
		assert_int_equal(standin_ranges(), others + 2);
	}
	/* And it stays until NCCL does not know it any more, which the stand-in watches. */
	actor_die(&crew_actors[1]);
	crew_await(EXCHANGE_NONE);
	assert_int_equal(standin_ranges(), 0);
	crew_enter(1);
	crew_get_ready();
	crew_attach(1);
}

/* ---- What is copied as it is ---- */

static void expect_copies(unsigned micro_batches)
{
	crew_push_all(HALVES, micro_batches - 1);
	crew_expect(HALVES, micro_batches);
	assert_int_equal(gpu_summed_bytes(scene_job(NULL)), 0);
	assert_int_equal(crew_copied_bytes(), micro_batches * crew->ranks * crew_bytes(HALVES));
}

static void before_there_is_an_exchange_they_are_copied(void **state)
{
	crew_begin(&crew_pair);
	expect_copies(1);
	crew_learn_order();
	crew_await(EXCHANGE_READY);
	crew_push_all(HALVES, 1);
	crew_expect(HALVES, 2);
	assert_int_equal(gpu_summed_bytes(scene_job(NULL)), 2 * crew_bytes(HALVES));
}

/* The exchange has its GPU, and takes the rank for one that has none. */
static void of_a_rank_that_comes_later_they_are_copied(void **state)
{
	static const struct crew later = { .ranks = 3, .stage = 2, .gpus = { 0, 1, 1 } };

	crew = &later;
	crew_set_node();
	for (unsigned rank = 0; rank < 3; rank++)
		crew_enter(rank);
	crew_get_ready();
	for (unsigned rank = 0; rank < 2; rank++)
		crew_attach(rank);
	crew_learn_order();
	crew_await(EXCHANGE_READY);
	crew_attach(2);
	expect_copies(1);
	assert_int_equal(crew_exchange()->state, EXCHANGE_READY);
}

static void a_node_may_have_none_exchange(void **state)
{
	crew_begin(&(struct crew){ .ranks = 2, .stage = 2, .gpus = { 0, 1 }, .has_no_exchange = true });
	crew_learn_order();
	expect_copies(1);
	/* No memory is kept for it. */
	assert_int_equal(gpu_passes_held_bytes(crew_rank(0)->tier), GPU_PASSES_BYTES);
}

static void a_node_may_have_none_sum(void **state)
{
	crew_play(&(struct crew){ .ranks = 2, .stage = 2, .gpus = { 0, 1 }, .has_no_sums = true });
	expect_copies(1);
	assert_int_equal(gpu_passes_held_bytes(crew_rank(0)->tier), 0);
}

/* Of both units and a rank's gradients, 8 MiB each, and passes. */
static const uint64_t budget = 16 * MIB + GPU_PASSES_BYTES;

static void a_budget_without_room_has_them_copied(void **state)
{
	const struct gpu_tier *tier;

	crew_play(&(struct crew){ .ranks = 2, .stage = 2, .gpus = { 0, 1 }, .budget = budget });
	expect_copies(1);
	tier = crew_rank(0)->tier;
	assert_int_equal(gpu_passes_held_bytes(tier), GPU_PASSES_BYTES);
	assert_true(tier->memory.bytes + gpu_gradients_bytes(tier) + gpu_passes_held_bytes(tier) <= budget);
}

static void memory_for_it_comes_out_of_the_budget(void **state)
{
	const struct gpu_tier *tier;

	crew_play(&(struct crew){
		.ranks = 2, .stage = 2, .gpus = { 0, 1 }, .budget = budget + GPU_PIECES_BYTES });
	crew_push_all(HALVES, 0);
	crew_expect(HALVES, 1);
	assert_int_equal(gpu_summed_bytes(scene_job(NULL)), 2 * crew_bytes(HALVES));
	tier = crew_rank(0)->tier;
	assert_int_equal(gpu_passes_held_bytes(tier), GPU_PASSES_BYTES + GPU_PIECES_BYTES);
	assert_true(tier->memory.bytes + gpu_gradients_bytes(tier) + gpu_passes_held_bytes(tier) <=
		    budget + GPU_PIECES_BYTES);
}

static void one_rank_s_is_smaller_than_a_sum(void **state)
{
	struct job *job = crew_play(&crew_pair);
	uint32_t number = crew_push(1, HALVES, 0);

	crew_await_complete(job);
	actor_send_step(&crew_actors[0], 0.1f);
	assert_int_equal(crew_result(1, number), 0);
	crew_expect_from(1, HALVES, 1);
	assert_int_equal(gpu_summed_bytes(job), 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(two_gpus_sum_what_a_rank_of_each_pushes),
		TEST(some_ranks_may_share_a_gpu),
		TEST(four_gpus_sum_together),
		TEST(a_rank_that_closes_its_part_is_not_waited_for),
		TEST(what_comes_meanwhile_is_summed_after_it),
		TEST(nccl_knows_the_memory_that_they_push_from),
		TEST(before_there_is_an_exchange_they_are_copied),
		TEST(of_a_rank_that_comes_later_they_are_copied),
		TEST(a_node_may_have_none_exchange),
		TEST(a_node_may_have_none_sum),
		TEST(a_budget_without_room_has_them_copied),
		TEST(memory_for_it_comes_out_of_the_budget),
		TEST(one_rank_s_is_smaller_than_a_sum),
	};

	if (argc > 1)
		return gpu_peer_run(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
