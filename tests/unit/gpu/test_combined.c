/* Where gradients that ranks push from GPUs are summed: how that is measured, what follows from it, and what
 * tells nothing. The stand-ins play GPUs and NCCL, with the kernels of a GPU as functions. */
#include "daemon/gradients/own.h"
#include "tests/lib/gpu/cuda_calls.h"
#include "tests/unit/gpu/gpu_crew.h"
#include "tests/unit/test.h"
#include "tests/unit/training.h"

#define TEST(name) cmocka_unit_test_setup_teardown(name, crew_setup, crew_teardown)

static const struct crew one_gpu = { .ranks = 2, .stage = 2, .gpus = { 1, 1 }, .is_measured = true };
static const struct crew two_gpus = { .ranks = 2, .stage = 2, .gpus = { 0, 1 }, .is_measured = true };

static struct gpu_choice *choice(void)
{
	return &scene_job(NULL)->gradients->choice;
}

static void expect_seen(unsigned plain, unsigned together)
{
	assert_int_equal(choice()->ways[GPU_WAY_PLAIN].seen, plain);
	assert_int_equal(choice()->ways[GPU_WAY_TOGETHER].seen, together);
}

/* That of what is pushed in step 1. */
static enum gpu_way way_of(unsigned micro_batch)
{
	return gpu_choice_way(choice(), 1 + micro_batch);
}

/* ---- Pushes ---- */

/* By that way. What comes home by itself does not wait for the other rank. */
static void push_in_turn(uint32_t unit, unsigned micro_batch, enum gpu_way way)
{
	const struct job *job = scene_job(NULL);
	uint64_t copied = crew_copied_bytes(), summed = gpu_summed_bytes(job);
	uint32_t numbers[2];

	for (unsigned rank = 0; rank < 2; rank++) {
		numbers[rank] = crew_push(rank, unit, micro_batch);
		crew_await_complete(job);
		if (rank == 0)
			assert_int_equal(crew_copied_bytes() - copied,
					 way == GPU_WAY_PLAIN ? crew_bytes(unit) : 0);
	}
	for (unsigned rank = 0; rank < 2; rank++)
		assert_int_equal(crew_result(rank, numbers[rank]), 0);
	assert_int_equal(gpu_summed_bytes(job) - summed, way == GPU_WAY_TOGETHER ? 2 * crew_bytes(unit) : 0);
}

static void make_older(const struct member *member)
{
	for (uint32_t i = 0; i < member->buffer_count; i++) {
		struct contribution *contribution = &member->pusher->contributions[i];

		if (!contribution->is_active)
			continue;
		assert_true(contribution->complete_ns > 1);
		contribution->complete_ns = 1;
	}
}

/* As if all had been complete since the machine began, and what followed had taken that long. */
static void push_slowly(uint32_t unit, unsigned micro_batch)
{
	struct job *job = scene_job(NULL);
	struct sum *sum = gradient_sum_of(job, unit, 0);
	uint32_t numbers[2];

	sum->is_reducing = true;
	for (unsigned rank = 0; rank < 2; rank++)
		numbers[rank] = crew_push(rank, unit, micro_batch);
	crew_await_complete(job);
	for (unsigned rank = 0; rank < 2; rank++)
		make_older(crew_rank(rank)->member);
	sum->is_reducing = false;
	sum_try(job, sum);
	for (unsigned rank = 0; rank < 2; rank++)
		assert_int_equal(crew_result(rank, numbers[rank]), 0);
}

/* ---- What is measured ---- */

/* Of two units, in three micro-batches each way. */
#define MICRO_BATCHES GPU_CHOICE_TRIES

static void measure(enum gpu_way slow)
{
	for (unsigned micro_batch = 0; micro_batch < MICRO_BATCHES; micro_batch++)
		for (uint32_t unit = 0; unit < UNITS; unit++) {
			enum gpu_way way = way_of(micro_batch);

			if (way == slow)
				push_slowly(unit, micro_batch);
			else
				push_in_turn(unit, micro_batch, way);
		}
	expect_seen(GPU_CHOICE_TRIES, GPU_CHOICE_TRIES);
}

static void expect_way(enum gpu_way way)
{
	for (unsigned micro_batch = MICRO_BATCHES; micro_batch < MICRO_BATCHES + 2; micro_batch++)
		push_in_turn(HALVES, micro_batch, way);
	crew_expect(HALVES, MICRO_BATCHES + 2);
}

static void micro_batches_go_each_way_in_turn(void **state)
{
	crew_begin(&one_gpu);
	for (unsigned micro_batch = 0; micro_batch < 4; micro_batch++)
		for (uint32_t unit = 0; unit < UNITS; unit++)
			push_in_turn(unit, micro_batch,
				     micro_batch % 2 == 0 ? GPU_WAY_PLAIN : GPU_WAY_TOGETHER);
	expect_seen(4, 4);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		crew_expect(unit, 4);
}

static void a_gpu_sums_where_that_is_faster(void **state)
{
	crew_begin(&one_gpu);
	measure(GPU_WAY_PLAIN);
	expect_way(GPU_WAY_TOGETHER);
}

static void a_gpu_does_not_sum_where_that_is_slower(void **state)
{
	crew_begin(&one_gpu);
	measure(GPU_WAY_TOGETHER);
	expect_way(GPU_WAY_PLAIN);
	/* Unless the node says so. */
	scene.node->settings.gpu_sums = GPU_SUMS_ALWAYS;
	push_in_turn(HALVES, MICRO_BATCHES + 2, GPU_WAY_TOGETHER);
}

static void several_gpus_sum_where_that_is_faster(void **state)
{
	crew_play(&two_gpus);
	measure(GPU_WAY_PLAIN);
	expect_way(GPU_WAY_TOGETHER);
}

static void several_gpus_do_not_sum_where_that_is_slower(void **state)
{
	crew_play(&two_gpus);
	measure(GPU_WAY_TOGETHER);
	expect_way(GPU_WAY_PLAIN);
}

/* ---- What tells nothing ---- */

static void small_units_come_home(void **state)
{
	crew_begin(&(struct crew){
		.ranks = 2, .stage = 2, .gpus = { 1, 1 }, .is_measured = true, .has_few = true });
	for (unsigned micro_batch = 0; micro_batch < 2; micro_batch++)
		push_in_turn(FEW, micro_batch, GPU_WAY_PLAIN);
	crew_expect(FEW, 2);
	expect_seen(0, 0);
}

/* Then nothing could be chosen. */
static void without_an_exchange_nothing_is_measured(void **state)
{
	crew_begin(&two_gpus);
	for (unsigned micro_batch = 0; micro_batch < 2; micro_batch++)
		push_in_turn(HALVES, micro_batch, GPU_WAY_PLAIN);
	expect_seen(0, 0);
}

static void what_meets_host_memory_tells_nothing(void **state)
{
	struct job *job = crew_begin(&one_gpu);

	for (unsigned micro_batch = 0; micro_batch < 2; micro_batch++) {
		uint32_t number = crew_push(0, HALVES, micro_batch);

		crew_await_complete(job);
		training_fill(&crew_actors[1], HALVES, 1);
		actor_send_silent_push(&crew_actors[1], HALVES, HALVES);
		assert_int_equal(crew_result(0, number), 0);
	}
	assert_int_equal(gpu_summed_bytes(job), 0);
	expect_seen(0, 0);
}

/* They come home, and are not taken for what was to. */
static void a_sum_that_fails_tells_nothing(void **state)
{
	crew_begin(&one_gpu);
	push_in_turn(HALVES, 0, GPU_WAY_PLAIN);
	standin_tell("STANDIN_FAILURES", "cuLaunchKernel=1");
	crew_push_all(HALVES, 1);
	standin_tell("STANDIN_FAILURES", NULL);
	crew_expect(HALVES, 2);
	expect_seen(1, 0);
}

/* One rank's are smaller than a sum. */
static void what_comes_home_late_tells_nothing(void **state)
{
	struct job *job = crew_begin(&one_gpu);
	uint32_t number;

	push_in_turn(HALVES, 0, GPU_WAY_PLAIN);
	number = crew_push(1, HALVES, 1);
	crew_await_complete(job);
	actor_send_step(&crew_actors[0], 0.1f);
	assert_int_equal(crew_result(1, number), 0);
	assert_int_equal(gpu_summed_bytes(job), 0);
	expect_seen(1, 0);
}

static void each_epoch_measures_anew(void **state)
{
	struct job *job = crew_begin(&one_gpu);

	measure(GPU_WAY_TOGETHER);
	actor_die(&crew_actors[1]);
	while (job_is_live(job))
		scene_wait(&scene);
	expect_seen(0, 0);
	crew_enter(1);
	crew_get_ready();
	crew_attach(1);
	push_in_turn(HALVES, 0, GPU_WAY_PLAIN);
	push_in_turn(HALVES, 1, GPU_WAY_TOGETHER);
	expect_seen(1, 1);
	crew_expect(HALVES, 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(micro_batches_go_each_way_in_turn),
		TEST(a_gpu_sums_where_that_is_faster),
		TEST(a_gpu_does_not_sum_where_that_is_slower),
		TEST(several_gpus_sum_where_that_is_faster),
		TEST(several_gpus_do_not_sum_where_that_is_slower),
		TEST(small_units_come_home),
		TEST(without_an_exchange_nothing_is_measured),
		TEST(what_meets_host_memory_tells_nothing),
		TEST(a_sum_that_fails_tells_nothing),
		TEST(what_comes_home_late_tells_nothing),
		TEST(each_epoch_measures_anew),
	};

	if (argc > 1)
		return gpu_peer_run(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
