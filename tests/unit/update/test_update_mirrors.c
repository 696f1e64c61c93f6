/* State that stays on a GPU, which the stand-in plays: bits are those of processors, whoever changes state in
 * between, and what is there is not copied again. As test_gpu_mirrors the GPU is a real one. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "daemon/durability/durable.h"
#include "daemon/gpu/own.h"
#include "daemon/update/own.h"
#include "daemon/update/sweep.h"
#include "daemon/update/update.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/test.h"
#include "tests/unit/update/gpu_training.h"

/* One pack, of three chunks of bf16 and two of fp32. The last of bf16 is too small to stay. */
#define UNITS 5
static const uint64_t elements[UNITS] = { (1 << 18) + 700, 200000, 20001, 200001, (1 << 18) - 7 };
/* Several in a chunk. */
static const uint64_t small[UNITS] = { 30000, 30001, 20001, 40000, 30700 };
#define STEPS 6
/* Enough for all of it. */
#define BUDGET (64 * MIB)

#define TEST(name) cmocka_unit_test_setup_teardown(name, gpu_training_setup, gpu_training_teardown)

/* ---- A training ---- */

/* Takes the step, after what happens before it; NULL: only that. Returns the steps that the job has made. */
typedef uint64_t play(struct job *job, uint64_t step);

struct training {
	struct actor_job options;
	const uint64_t *elements;
	play *play;
	float fraction;
	uint64_t budget;
};

struct trained {
	uint64_t hash;
	/* In the last step alone. */
	uint64_t to_gpu, from_gpu, spared;
	uint64_t all_spared, state_bytes;
};

static bool has_gpu;

static const struct gpu_tier *the_tier(const struct job *job)
{
	return queue_entry(queue_first(&job->gpu->tiers), struct gpu_tier, link);
}

static uint64_t just_step(struct job *job, uint64_t step)
{
	gpu_training_step(step);
	return step + 1;
}

static struct job *begin(const struct training *training)
{
	struct job *job = training_start(&actor, &training->options,
					 training->elements ? training->elements : elements, UNITS);

	has_gpu = training->fraction != 0;
	if (has_gpu)
		assert_int_equal(gpu_training_ask(training->fraction, training->budget), 0);
	return job;
}

static struct trained train(const struct training *training)
{
	play *take = training->play ? training->play : just_step;
	struct job *job = begin(training);
	struct gpu_updates_figures before = { 0 }, after;
	struct trained trained;
	uint64_t version = 0;

	for (uint64_t step = 0; step < STEPS; step++) {
		before = gpu_updates_figures(job);
		version = take(job, step);
	}
	after = gpu_updates_figures(job);
	trained = (struct trained){ .hash = gpu_training_hash(job, version),
				    .to_gpu = after.to_gpu_bytes - before.to_gpu_bytes,
				    .from_gpu = after.from_gpu_bytes - before.from_gpu_bytes,
				    .spared = after.spared_bytes - before.spared_bytes,
				    .all_spared = after.spared_bytes,
				    .state_bytes = has_gpu ? gpu_mirrors_bytes(the_tier(job)) : 0 };
	gpu_training_end(job);
	return trained;
}

static struct trained train_on(struct training training, float fraction, uint64_t budget)
{
	training.fraction = fraction;
	training.budget = budget;
	return train(&training);
}

static struct training training_of(uint32_t parameters_on, uint32_t optimizer_on)
{
	return (struct training){ .options = gpu_training_options(parameters_on, optimizer_on) };
}

/* Against processors; and a GPU that keeps nothing, as it has no budget. In the end state stays there. */
static struct trained compare(const struct training *training)
{
	struct trained processors = train_on(*training, 0, 0), without = train_on(*training, 1, 0),
		       with = train_on(*training, 1, BUDGET);

	assert_true(processors.hash == without.hash);
	assert_true(processors.hash == with.hash);
	assert_int_equal(without.all_spared + without.state_bytes, 0);
	assert_int_equal(with.from_gpu, without.from_gpu);
	assert_int_equal(with.to_gpu + with.spared, without.to_gpu);
	assert_true(with.spared > 0 && with.state_bytes > 0);
	return with;
}

/* ---- Bits, and bytes ---- */

/* Of moments in fp32 four bytes an element go there instead of 16. */
static void what_is_there_is_not_copied_again(void **state)
{
	struct training training = training_of(PLACEMENT_HOST, PLACEMENT_HOST);
	const uint64_t padded = (1 << 18) + 768 + 20224, last = padded + elements[4] - 2 * CHUNK_ELEMENTS;
	uint64_t there = 0;

	for (unsigned unit = 0; unit < UNITS; unit++)
		there += elements[unit];
	assert_int_equal(compare(&training).spared, 12 * (there - last));
}

static void each_format_has_the_bits_of_processors(void **state)
{
	static const struct {
		uint32_t optimizer;
		enum wire_moments moments;
	} cases[] = { { OPTIMIZER_ADAMW, MOMENTS_IN_BF16 },
		      { OPTIMIZER_ADAM, MOMENTS_IN_INT8 },
		      { OPTIMIZER_SGD, MOMENTS_IN_FP32 },
		      { OPTIMIZER_LION, MOMENTS_IN_INT8 } };

	for (unsigned i = 0; i < ARRAY_LENGTH(cases); i++) {
		struct training training = training_of(PLACEMENT_HOST, PLACEMENT_HOST);

		training.options.optimizer = cases[i].optimizer;
		training.options.moments = cases[i].moments;
		training.options.is_pushed_once = i % 2;
		compare(&training);
	}
}

static void state_on_nvme_has_the_same_bits(void **state)
{
	struct training training = training_of(PLACEMENT_NVME, PLACEMENT_NVME);

	compare(&training);
	training = training_of(PLACEMENT_HOST, PLACEMENT_NVME);
	training.options.host_budget = 24 * MIB;
	compare(&training);
}

static uint64_t announce_and_step(struct job *job, uint64_t step)
{
	training_begin_step(&actor);
	return just_step(job, step);
}

static void early_updates_have_the_same_bits(void **state)
{
	struct training training = training_of(PLACEMENT_NVME, PLACEMENT_NVME);

	training.play = announce_and_step;
	compare(&training);
}

/* Those that it has had before. */
static void gpus_that_take_a_part_take_what_is_there(void **state)
{
	static const float fractions[] = { 0.5f, GPU_UPDATES_AS_MEASURED };
	struct training training = training_of(PLACEMENT_HOST, PLACEMENT_HOST);
	uint64_t expected = train_on(training, 0, 0).hash;

	for (unsigned i = 0; i < ARRAY_LENGTH(fractions); i++) {
		struct trained trained = train_on(training, fractions[i], BUDGET);

		assert_true(trained.hash == expected);
		if (fractions[i] > 0)
			assert_true(trained.spared > trained.to_gpu);
	}
}

/* ---- Others change state ---- */

static uint64_t processors_take_some_steps(struct job *job, uint64_t step)
{
	if (has_gpu)
		((struct gpu_tier *)the_tier(job))->update_fraction = step == STEPS - 2 ? 0 : 1;
	return just_step(job, step);
}

static void what_processors_update_is_copied_again(void **state)
{
	struct training training = training_of(PLACEMENT_HOST, PLACEMENT_HOST);
	struct trained trained;

	training.play = processors_take_some_steps;
	trained = train_on(training, 1, BUDGET);
	assert_true(trained.hash == train_on(training, 0, 0).hash);
	assert_true(trained.to_gpu > 0 && trained.all_spared > 0);
	assert_int_equal(trained.spared, 0);
}

/* Those two of which a mirror has the one, and then is asked for the other, are of one format. */
static uint64_t nobody_pushes_some(struct job *job, uint64_t step)
{
	static const unsigned pushed[STEPS] = { 0x1f, 0x1f, 0x0b, 0x0e, 0x1f, 0x1f };

	for (uint32_t unit = UNITS; unit-- > 0;)
		if (pushed[step] >> unit & 1)
			training_push(&actor, unit, training_gradient(unit, step));
	training_step(&actor);
	scene_settle(&scene);
	return step + 1;
}

static void units_that_miss_a_step_have_the_same_bits(void **state)
{
	struct training training = training_of(PLACEMENT_HOST, PLACEMENT_HOST);

	training.elements = small;
	training.play = nobody_pushes_some;
	compare(&training);
}

static void write_floats(const struct job *job, uint32_t unit, const char *state, uint64_t first,
			 uint64_t count)
{
	uint64_t updates = job->catalog.units[unit].updates;

	for (uint64_t i = 0; i < count; i++)
		((float *)(void *)actor.window.base)[i] = 0.25f + (float)(i % 7);
	assert_int_equal(
		actor_await(&actor,
			    state ? actor_send_unit_state(&actor, unit, 0, state, updates, first, count)
				  : actor_send_masters(&actor, unit, 0, first, count),
			    0)
			->status,
		0);
}

/* Values of unit 0, and moments of unit 1; a writing counts as a step. */
static uint64_t write_before_the_last_steps(struct job *job, uint64_t step)
{
	uint32_t number;

	if (step != STEPS - 2)
		return just_step(job, step) + (step >= STEPS - 2);
	number = actor_send_write_begin(&actor);
	assert_int_equal(actor_await(&actor, number, 0)->status, 0);
	write_floats(job, 0, NULL, 1000, 3000);
	write_floats(job, 1, "m", 500, 9000);
	assert_int_equal(actor_end_write(&actor, false), 0);
	assert_int_equal(actor_await(&actor, number, 1)->status, 0);
	return just_step(job, step) + 1;
}

static void what_ranks_write_is_copied_again(void **state)
{
	static const uint32_t places[] = { PLACEMENT_HOST, PLACEMENT_NVME };

	for (unsigned i = 0; i < ARRAY_LENGTH(places); i++) {
		struct training training = training_of(PLACEMENT_HOST, places[i]);

		training.play = write_before_the_last_steps;
		compare(&training);
	}
}

/* Early updates of other gradients come to nothing; then come the right ones. */
static uint64_t drop_one_and_step(struct job *job, uint64_t step)
{
	uint64_t passes = job->update->passes;
	const struct answer *answer;

	training_begin_step(&actor);
	training_push_all(&actor, step + 17);
	scene_settle(&scene);
	assert_true(job->update->passes > passes);
	actor.is_dropping = true;
	answer = actor_await(&actor, actor_send_step(&actor, 0), 0);
	actor.is_dropping = false;
	assert_true(answer->status == 0 && answer->reply->step->is_skipped);
	scene_settle(&scene);
	training_begin_step(&actor);
	just_step(job, step);
	return 2 * step + 2;
}

static void what_is_withdrawn_is_copied_again(void **state)
{
	struct training training = training_of(PLACEMENT_NVME, PLACEMENT_NVME);
	struct trained trained;

	training.play = drop_one_and_step;
	trained = train_on(training, 1, BUDGET);
	assert_true(trained.hash == train_on(training, 0, 0).hash);
	/* But for the first of both. */
	assert_true(trained.spared > 0 && trained.spared < 12 * 4 * CHUNK_ELEMENTS);
}

static uint64_t skip_one_and_step(struct job *job, uint64_t step)
{
	for (uint32_t unit = UNITS; unit-- > 0;)
		training_push(&actor, unit, unit == 2 ? NAN : 3.0f);
	assert_false(isfinite(training_step(&actor)));
	just_step(job, step);
	return 2 * step + 2;
}

static void a_step_that_is_skipped_leaves_it_there(void **state)
{
	struct training training = training_of(PLACEMENT_HOST, PLACEMENT_HOST);

	training.play = skip_one_and_step;
	training.options.nonfinite = NONFINITE_SKIP;
	compare(&training);
}

/* ---- It comes back ---- */

static struct actor watcher;

static void ask(Tierd__Wire__Request *request)
{
	const Tierd__Wire__Reply *reply;

	assert_int_equal(actor_enter(&scene, &watcher), 0);
	assert_int_equal(actor_ask(&watcher, request, &reply), 0);
	actor_die(&watcher);
}

static struct job *come_back(const struct training *training)
{
	struct training again = *training;

	again.options.mode = MODE_RESUME;
	return begin(&again);
}

static void what_is_rolled_back_is_copied_again(void **state)
{
	Tierd__Wire__SnapshotTake take = TIERD__WIRE__SNAPSHOT_TAKE__INIT;
	Tierd__Wire__JobRollBack roll_back = TIERD__WIRE__JOB_ROLL_BACK__INIT;
	struct training training = training_of(PLACEMENT_HOST, PLACEMENT_NVME);
	uint64_t expected;
	struct job *job;

	training.options.durability = DURABILITY_STEP;
	training.options.snapshots = 1;
	expected = train_on(training, 0, 0).hash;
	training.fraction = 1;
	training.budget = BUDGET;
	job = begin(&training);
	for (uint64_t step = 0; step < 3; step++)
		gpu_training_step(step);
	take.name = roll_back.name = (char *)"play";
	take.snapshot = roll_back.snapshot = (char *)"one";
	roll_back.force = true;
	ask(WIRE_REQUEST(SNAPSHOT_TAKE, snapshot_take, &take));
	for (uint64_t step = 3; step < 5; step++)
		gpu_training_step(step + 40);
	assert_true(gpu_updates_figures(job).spared_bytes > 0);
	ask(WIRE_REQUEST(JOB_ROLL_BACK, job_roll_back, &roll_back));
	actor_die(&actor);
	job = come_back(&training);
	assert_int_equal(actor.step, 3);
	for (uint64_t step = 3; step < STEPS; step++)
		gpu_training_step(step);
	assert_true(gpu_training_hash(job, STEPS) == expected);
	gpu_training_end(job);
}

static void a_rank_that_comes_back_finds_the_same_bits(void **state)
{
	struct training training = training_of(PLACEMENT_HOST, PLACEMENT_NVME);
	uint64_t expected = train_on(training, 0, 0).hash;
	struct job *job;

	training.fraction = 1;
	training.budget = BUDGET;
	job = begin(&training);
	for (uint64_t step = 0; step < STEPS; step++) {
		gpu_training_step(step);
		if (step % 2 == 0)
			continue;
		actor_die(&actor);
		scene_settle(&scene);
		job = come_back(&training);
		assert_int_equal(actor.step, step + 1);
	}
	assert_true(gpu_training_hash(job, STEPS) == expected);
	gpu_training_end(job);
}

static void the_next_daemon_goes_on_with_the_same_bits(void **state)
{
	struct training training = training_of(PLACEMENT_HOST, PLACEMENT_NVME);
	uint64_t expected;
	struct job *job;

	training.options.durability = DURABILITY_STEP;
	expected = train_on(training, 0, 0).hash;
	training.fraction = 1;
	training.budget = BUDGET;
	job = begin(&training);
	for (uint64_t step = 0; step < 4; step++)
		gpu_training_step(step);
	assert_true(gpu_updates_figures(job).spared_bytes > 0);
	actor_die(&actor);
	assert_int_equal(scene_restart(&(struct scene_options){ 0 }, &scene), 0);
	job = come_back(&training);
	assert_int_equal(actor.step, 4);
	for (uint64_t step = 4; step < STEPS; step++)
		gpu_training_step(step);
	assert_true(gpu_training_hash(job, STEPS) == expected);
	gpu_training_end(job);
}

#ifndef ON_HARDWARE
static uint64_t go_on_until_it_breaks(struct job *job, uint64_t step)
{
	uint64_t durable = 0;

	for (; !job_is_broken(job); step++) {
		assert_true(step < STEPS);
		training_push_all(&actor, step);
		(void)actor_await(&actor, actor_send_step(&actor, 0.1f), 0);
		scene_settle(&scene);
	}
	assert_true(durable_has_step(job, &durable));
	return durable;
}

/* From state that was there; processors go on. */
static void a_gpu_that_fails_costs_what_is_not_durable(void **state)
{
	static const char *const failures[] = { "kernel#3=700", "copy#9=719", "cuLaunchKernel#4=701" };
	struct training training = training_of(PLACEMENT_HOST, PLACEMENT_NVME);
	uint64_t expected;

	training.options.durability = DURABILITY_STEP;
	expected = train_on(training, 0, 0).hash;
	training.fraction = 1;
	training.budget = BUDGET;
	for (unsigned i = 0; i < ARRAY_LENGTH(failures); i++) {
		struct job *job;
		uint64_t step;

		job = begin(&training);
		for (step = 0; step < 4; step++)
			gpu_training_step(step);
		assert_true(gpu_updates_figures(job).spared_bytes > 0);
		standin_tell("STANDIN_FAILURES", failures[i]);
		step = go_on_until_it_breaks(job, step);
		standin_tell("STANDIN_FAILURES", NULL);
		actor_die(&actor);
		scene_settle(&scene);
		training.options.mode = MODE_RESUME;
		job = training_start(&actor, &training.options, elements, UNITS);
		training.options.mode = 0;
		assert_int_equal(actor.step, step);
		for (; step < STEPS; step++)
			gpu_training_step(step);
		assert_true(gpu_training_hash(job, STEPS) == expected);
		gpu_training_end(job);
		/* As for the next daemon. */
		scene.node->gpu->in_use[0].has_failed_update = false;
	}
}

static void a_gpu_without_memory_for_it_updates_as_before(void **state)
{
	struct training training = training_of(PLACEMENT_HOST, PLACEMENT_HOST);
	uint64_t expected = train_on(training, 0, 0).hash;
	struct trained trained;

	standin_tell("STANDIN_FAILURES", "cuMemCreate#3=2");
	trained = train_on(training, 1, BUDGET);
	standin_tell("STANDIN_FAILURES", NULL);
	assert_true(trained.hash == expected);
	assert_int_equal(trained.all_spared + trained.state_bytes, 0);
	assert_true(trained.to_gpu > 0);
}
#endif

/* ---- Budgets ---- */

/* Which chunks wait for the memory in the first steps is up to threads, so the last step alone counts. */
static void it_has_what_the_budget_leaves(void **state)
{
	struct training training = training_of(PLACEMENT_HOST, PLACEMENT_HOST);
	uint64_t expected = train_on(training, 0, 0).hash, spared = 0;
	unsigned increases = 0;

	training.fraction = 1;
	for (training.budget = 10 * MIB; training.budget <= 24 * MIB; training.budget += 2 * MIB) {
		struct job *job = begin(&training);
		struct gpu_job_figures figures[GPUS_MAX];
		uint64_t before = 0, now;

		for (uint64_t step = 0; step < STEPS; step++) {
			before = gpu_updates_figures(job).spared_bytes;
			gpu_training_step(step);
		}
		assert_int_equal(gpu_figures_of_job(job, figures), 1);
		assert_true(gpu_job_bytes(figures[0]) <= training.budget);
		assert_true(gpu_training_hash(job, STEPS) == expected);
		now = gpu_updates_figures(job).spared_bytes - before;
		assert_true((now > 0) == (figures[0].state_bytes > 0));
		assert_true(training.budget > 10 * MIB || now == 0);
		assert_true(now >= spared);
		increases += now > spared;
		spared = now;
		gpu_training_end(job);
	}
	/* One more place, and another one, until there is room for all. */
	assert_int_equal(increases, 4);
}

static uint64_t at_last_one_unit_alone(struct job *job, uint64_t step)
{
	if (step < STEPS / 2)
		return just_step(job, step);
	training_push(&actor, 1, training_gradient(1, step));
	training_step(&actor);
	scene_settle(&scene);
	return step + 1;
}

/* There is room for one mirror. The chunk that has it is the first one, which the last steps do not update.
 */
static void the_room_of_what_is_old_is_for_others(void **state)
{
	struct training training = training_of(PLACEMENT_HOST, PLACEMENT_HOST);
	struct trained trained;

	training.play = at_last_one_unit_alone;
	trained = train_on(training, 1, 14 * MIB);
	assert_true(trained.hash == train_on(training, 0, 0).hash);
	assert_int_equal(trained.state_bytes, 4 * MIB);
	assert_int_equal(trained.spared, 12 * elements[1]);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_there_is_not_copied_again),
		TEST(each_format_has_the_bits_of_processors),
		TEST(state_on_nvme_has_the_same_bits),
		TEST(early_updates_have_the_same_bits),
		TEST(gpus_that_take_a_part_take_what_is_there),
		TEST(what_processors_update_is_copied_again),
		TEST(units_that_miss_a_step_have_the_same_bits),
		TEST(what_ranks_write_is_copied_again),
		TEST(what_is_withdrawn_is_copied_again),
		TEST(a_step_that_is_skipped_leaves_it_there),
		TEST(what_is_rolled_back_is_copied_again),
		TEST(a_rank_that_comes_back_finds_the_same_bits),
		TEST(the_next_daemon_goes_on_with_the_same_bits),
#ifndef ON_HARDWARE
		TEST(a_gpu_that_fails_costs_what_is_not_durable),
		TEST(a_gpu_without_memory_for_it_updates_as_before),
#endif
		TEST(it_has_what_the_budget_leaves),
		TEST(the_room_of_what_is_old_is_for_others),
	};

	if (argc > 1)
		return gpu_training_main(argc, argv);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
