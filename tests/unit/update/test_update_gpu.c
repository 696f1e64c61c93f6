/* Updates that GPUs share, which the stand-in plays: the bits are those of processors alone, whatever a GPU
 * gets, wherever the state lies; and a GPU that fails costs the steps since the last durable one. As
 * test_gpu_sharing it is a real one, which does not fail on demand. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "daemon/durability/durable.h"
#include "daemon/gpu/own.h"
#include "daemon/update/own.h"
#include "daemon/update/sweep.h"
#include "daemon/update/update.h"
#include "daemon/update/warm_inside.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/seeds.h"
#include "tests/unit/test.h"
#include "tests/unit/update/gpu_training.h"

/* A pack of several chunks, one of three units, and more; bf16 and fp32 in turns. */
#define UNITS 5
static const uint64_t elements[UNITS] = { (1 << 18) + 700, 30000, 20001, 30000, (1 << 18) - 7 };
#define STEPS 3

#define TEST(name) cmocka_unit_test_setup_teardown(name, gpu_training_setup, gpu_training_teardown)

/* ---- A training ---- */

#define NO_GPU 2.0f

struct trained {
	uint64_t hash;
	struct gpu_updates_figures copied;
	uint64_t all, by_gpus, by_processors;
};

/* And what fills them up. */
static uint64_t all_elements(const struct job *job)
{
	uint64_t all = 0;

	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		for (int section = 0; section < UNIT_TRAINABLE_SECTIONS; section++)
			all += job->catalog.packs[pack].elements[section];
	return all;
}

static struct trained train(const struct actor_job *options, float fraction, bool is_early)
{
	struct job *job = training_start(&actor, options, elements, UNITS);
	struct trained trained;

	if (fraction != NO_GPU)
		assert_int_equal(gpu_training_ask(fraction, 0), 0);
	for (uint64_t step = 0; step < STEPS; step++) {
		if (is_early)
			training_begin_step(&actor);
		gpu_training_step(step);
	}
	trained = (struct trained){ .hash = gpu_training_hash(job, STEPS),
				    .copied = gpu_updates_figures(job),
				    .all = STEPS * all_elements(job),
				    .by_gpus = update_elements(job, SHARE_GPUS),
				    .by_processors = update_elements(job, SHARE_PROCESSORS) };
	gpu_training_end(job);
	return trained;
}

static void compare(const struct actor_job *options, float fraction, bool is_early)
{
	struct trained expected = train(options, NO_GPU, is_early), ours = train(options, fraction, is_early);

	assert_int_equal(expected.by_gpus, 0);
	assert_int_equal(expected.by_processors, expected.all);
	assert_true(ours.hash == expected.hash);
	assert_int_equal(ours.by_gpus + ours.by_processors, ours.all);
	if (fraction == 0)
		assert_int_equal(ours.by_gpus, 0);
	else
		assert_true(ours.by_gpus > 0 && ours.copied.to_gpu_bytes > ours.copied.from_gpu_bytes &&
			    ours.copied.from_gpu_bytes > 0);
	/* In the first step memory may not be registered yet. */
	if (fraction == 1)
		assert_true(ours.by_gpus >= ours.all / STEPS * (STEPS - 1));
}

/* ---- Tests ---- */

static void each_optimizer_has_the_bits_of_processors(void **state)
{
	static const uint32_t optimizers[] = { OPTIMIZER_ADAMW, OPTIMIZER_ADAM, OPTIMIZER_SGD,
					       OPTIMIZER_LION };

	for (unsigned i = 0; i < ARRAY_LENGTH(optimizers); i++)
		for (unsigned moments = 0; moments < WIRE_MOMENTS; moments++) {
			struct actor_job options = gpu_training_options(PLACEMENT_HOST, PLACEMENT_HOST);

			options.optimizer = optimizers[i];
			options.moments = (enum wire_moments)moments;
			options.is_pushed_once = (i + moments) % 2;
			compare(&options, 1, false);
		}
}

/* State in host memory that is left over, too. */
static void state_on_nvme_has_the_same_bits(void **state)
{
	struct actor_job options = gpu_training_options(PLACEMENT_NVME, PLACEMENT_NVME);

	compare(&options, 1, false);
	options = gpu_training_options(PLACEMENT_HOST, PLACEMENT_NVME);
	compare(&options, 1, false);
	options.is_pushed_once = true;
	options.host_budget = 24 * MIB;
	compare(&options, 1, false);
}

/* It is registered no more when it goes. */
static void memory_that_is_wanted_back_is_given_up(void **state)
{
	struct actor_job options = gpu_training_options(PLACEMENT_NVME, PLACEMENT_NVME);
	uint64_t expected = train(&options, NO_GPU, false).hash;
	struct job *job = training_start(&actor, &options, elements, UNITS);
	const char *memory;

	assert_int_equal(gpu_training_ask(1, 0), 0);
	gpu_training_step(0);
	gpu_training_step(1);
	assert_true(warm_bytes_here(job) > 0);
	memory = job->update->warm->segments[0].memory.base;
	assert_true(gpu_updates_reach(gpu_updates_find(job), memory, 1));
	while (warm_bytes_here(job) > 0)
		warm_close(job);
	job_settle(job);
	while (warm_bytes_leaving(job) > 0)
		scene_wait(&scene);
	assert_false(gpu_updates_reach(gpu_updates_find(job), memory, 1));
	gpu_training_step(2);
	assert_true(gpu_training_hash(job, STEPS) == expected);
	gpu_training_end(job);
}

static void early_updates_have_the_same_bits(void **state)
{
	struct actor_job options = gpu_training_options(PLACEMENT_NVME, PLACEMENT_NVME);

	compare(&options, 1, true);
	options = gpu_training_options(PLACEMENT_HOST, PLACEMENT_NVME);
	compare(&options, 0.5f, true);
}

static void each_fraction_has_the_same_bits(void **state)
{
	static const float fractions[] = { 0, 0.5f, GPU_UPDATES_AS_MEASURED };
	struct actor_job options = gpu_training_options(PLACEMENT_HOST, PLACEMENT_HOST);

	for (unsigned i = 0; i < ARRAY_LENGTH(fractions); i++)
		compare(&options, fractions[i], false);
}

static void a_fraction_that_is_none_is_refused(void **state)
{
	static const float fractions[] = { -0.5f, 1.5f, NAN };
	struct actor_job options = gpu_training_options(PLACEMENT_HOST, PLACEMENT_HOST);
	struct job *job = training_start(&actor, &options, elements, UNITS);

	for (unsigned i = 0; i < ARRAY_LENGTH(fractions); i++) {
		assert_int_equal(gpu_training_ask(fractions[i], 0), -EINVAL);
		assert_non_null(strstr(actor_message(&actor), "from 0 to 1, or -1"));
	}
	gpu_training_end(job);
}

/* What the units need least has the precedence. */
static void a_budget_without_room_for_updates_leaves_them_to_processors(void **state)
{
	const uint64_t budgets[] = { 3 * MIB, 12 * MIB };
	struct actor_job options = gpu_training_options(PLACEMENT_HOST, PLACEMENT_HOST);

	for (unsigned i = 0; i < ARRAY_LENGTH(budgets); i++) {
		struct job *job = training_start(&actor, &options, elements, UNITS);
		const struct gpu_tier *tier;

		assert_int_equal(gpu_training_ask(1, budgets[i]), 0);
		tier = queue_entry(queue_first(&job->gpu->tiers), struct gpu_tier, link);
		assert_true((gpu_updates_find(job) != NULL) == (i == 1));
		assert_true(tier->memory.bytes + gpu_passes_held_bytes(tier) <= budgets[i]);
		gpu_training_end(job);
	}
}

#ifndef ON_HARDWARE
/* The tier is there without. */
static void a_gpu_that_cannot_update_leaves_it_to_processors(void **state)
{
	static const char *const failures[] = { "cuModuleLoadData=200", "cuModuleGetFunction#3=500",
						"cuMemCreate#2=2" };
	struct actor_job options = gpu_training_options(PLACEMENT_HOST, PLACEMENT_HOST);
	uint64_t expected = train(&options, NO_GPU, false).hash;

	for (unsigned i = 0; i < ARRAY_LENGTH(failures); i++) {
		struct trained trained;

		standin_tell("STANDIN_FAILURES", failures[i]);
		trained = train(&options, 1, false);
		assert_true(trained.hash == expected);
		assert_int_equal(trained.by_gpus, 0);
		standin_tell("STANDIN_FAILURES", NULL);
	}
}

static void memory_that_is_not_registered_is_left_to_processors(void **state)
{
	struct actor_job options = gpu_training_options(PLACEMENT_HOST, PLACEMENT_HOST);
	uint64_t expected = train(&options, NO_GPU, false).hash;
	struct trained trained;

	standin_tell("STANDIN_FAILURES", "cuMemHostRegister_v2=1");
	trained = train(&options, 1, false);
	assert_true(trained.hash == expected);
	assert_int_equal(trained.by_gpus, 0);
}

/* Until the job is broken: the step that is durable. */
static uint64_t go_on_until_it_breaks(struct job *job)
{
	uint64_t durable = 0;

	for (uint64_t step = 0; !job_is_broken(job); step++) {
		assert_true(step < 20);
		training_push_all(&actor, step);
		(void)actor_await(&actor, actor_send_step(&actor, 0.1f), 0);
		scene_settle(&scene);
	}
	assert_true(durable_has_step(job, &durable));
	return durable;
}

/* All that is durable; and the job goes on from there, without that GPU. */
static void a_gpu_that_fails_in_an_update_costs_what_is_not_durable(void **state)
{
	static const char *const failures[] = { "kernel#3=700", "kernel#6=719", "copy#9=719",
						"cuLaunchKernel#4=701", "cuLaunchKernel#5=719!" };
	struct actor_job options = gpu_training_options(PLACEMENT_HOST, PLACEMENT_NVME);
	uint64_t expected;

	options.durability = DURABILITY_STEP;
	expected = train(&options, NO_GPU, false).hash;
	for (unsigned i = 0; i < ARRAY_LENGTH(failures); i++) {
		struct job *job = training_start(&actor, &options, elements, UNITS);
		struct actor_job again = options;
		uint64_t step;

		assert_int_equal(gpu_training_ask(1, 0), 0);
		scene_settle(&scene);
		standin_tell("STANDIN_FAILURES", failures[i]);
		step = go_on_until_it_breaks(job);
		assert_non_null(strstr(job->epoch.reason, "its update on a GPU has failed"));
		standin_tell("STANDIN_FAILURES", NULL);
		actor_die(&actor);
		scene_settle(&scene);
		again.mode = MODE_RESUME;
		job = training_start(&actor, &again, elements, UNITS);
		assert_int_equal(actor.step, step);
		/* It is not tried again, where it can still be had. */
		assert_true(gpu_training_ask(1, 0) != 0 || !gpu_updates_find(job));
		for (; step < STEPS; step++)
			gpu_training_step(step);
		assert_true(step > STEPS || gpu_training_hash(job, STEPS) == expected);
		gpu_training_end(job);
		/* As for the next daemon. */
		scene.node->gpu->in_use[0].has_failed_update = false;
	}
}
#endif

/* Its chunks come home first. */
static void a_rank_that_dies_while_a_gpu_updates_leaves_it_whole(void **state)
{
	struct actor_job options = gpu_training_options(PLACEMENT_HOST, PLACEMENT_NVME);
	uint64_t expected = train(&options, NO_GPU, false).hash;
	struct job *job = training_start(&actor, &options, elements, UNITS);

	assert_int_equal(gpu_training_ask(1, 0), 0);
	gpu_training_step(0);
	gpu_training_step(1);
	training_push_all(&actor, 2);
	actor_send_step(&actor, 0.1f);
	while (!job->update->sweep || job->update->share.sides[SHARE_GPUS].waiting == 0)
		scene_wait(&scene);
	actor_die(&actor);
	scene_settle(&scene);
	options.mode = MODE_RESUME;
	job = training_start(&actor, &options, elements, UNITS);
	assert_int_equal(actor.step, STEPS);
	assert_true(gpu_training_hash(job, STEPS) == expected);
	gpu_training_end(job);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(each_optimizer_has_the_bits_of_processors),
		TEST(state_on_nvme_has_the_same_bits),
		TEST(memory_that_is_wanted_back_is_given_up),
		TEST(early_updates_have_the_same_bits),
		TEST(each_fraction_has_the_same_bits),
		TEST(a_fraction_that_is_none_is_refused),
		TEST(a_budget_without_room_for_updates_leaves_them_to_processors),
#ifndef ON_HARDWARE
		TEST(a_gpu_that_cannot_update_leaves_it_to_processors),
		TEST(memory_that_is_not_registered_is_left_to_processors),
		TEST(a_gpu_that_fails_in_an_update_costs_what_is_not_durable),
#endif
		TEST(a_rank_that_dies_while_a_gpu_updates_leaves_it_whole),
	};

	if (argc > 1)
		return gpu_training_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
