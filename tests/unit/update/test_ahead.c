/* State that is read before its update: the same bits, no byte more, and nobody waits for what it holds. */
#include <event2/event.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "common/size.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/life.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/read_ahead.h"
#include "daemon/update/early.h"
#include "daemon/update/own.h"
#include "daemon/update/sweep.h"
#include "tests/unit/test.h"
#include "tests/unit/training.h"

/* Packs of several chunks: more than there are buffers for, together. */
#define UNITS 4
#define FIRST 0
#define LAST (UNITS - 1)
static const uint64_t elements[UNITS] = { 5 << 18, 1 << 20, (1 << 20) - 7, 5 << 18 };
#define STEPS 3

static struct actor actor;

/* ---- A job ---- */

static struct job *start_with(const struct actor_job *options)
{
	return training_start(&actor, options, elements, UNITS);
}

static struct actor_job options_of(uint32_t optimizer)
{
	return (struct actor_job){ .stage = 3,
				   .parameter_placement = PLACEMENT_HOST,
				   .optimizer_placement = optimizer,
				   .gradient_placement = PLACEMENT_HOST };
}

/* No more host memory than the job needs: what is left would keep its state from one step to the next. */
static uint64_t find_need(const uint64_t *of_units, unsigned units)
{
	const struct actor_job options = options_of(PLACEMENT_NVME);
	struct job *job = training_start(&actor, &options, of_units, units);
	uint64_t need = budget_host_bytes(job) - budget_cache_bytes(job);

	training_end(&actor, job);
	return need;
}

static struct actor_job streaming(void)
{
	struct actor_job options = options_of(PLACEMENT_NVME);
	static uint64_t need;

	if (need == 0)
		need = find_need(elements, UNITS);
	options.host_budget = need;
	return options;
}

static struct job *start(void)
{
	const struct actor_job options = streaming();

	return start_with(&options);
}

static void train(uint64_t number)
{
	training_push_all(&actor, number);
	training_step(&actor);
}

/* Of a job whose state is in host memory, where nothing is read. */
static uint64_t hash_after(unsigned steps)
{
	const struct actor_job options = options_of(PLACEMENT_HOST);
	static uint64_t hashes[STEPS + 1];

	if (hashes[steps])
		return hashes[steps];
	struct job *job = start_with(&options);

	for (uint64_t i = 0; i < steps; i++)
		train(i);
	hashes[steps] = training_hash(&actor, steps);
	training_end(&actor, job);
	return hashes[steps];
}

/* ---- What it has read ---- */

static uint64_t read_bytes(const struct job *job)
{
	return figures_of(job)->bytes[STATISTICS_UPDATE][STATISTICS_READ];
}

/* Of a step: what the optimizer keeps of each unit, a stream each, in whole pages. */
static uint64_t state_bytes_of_step(void)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < UNITS; i++) {
		uint64_t moments = 2 * size_align(elements[i] * sizeof(float), STORE_PAGE_BYTES);
		uint64_t remainder = size_align(elements[i] * sizeof(uint16_t), STORE_PAGE_BYTES);

		bytes += moments + (i % 2 ? 0 : remainder);
	}
	return bytes;
}

static bool is_of(const struct job *job, uint32_t pack, uint32_t unit)
{
	return job->catalog.units[unit].pack == pack;
}

static bool is_first(const struct job *job, uint32_t pack)
{
	return is_of(job, pack, FIRST);
}

static bool is_last(const struct job *job, uint32_t pack)
{
	return is_of(job, pack, LAST);
}

static bool has(bool (*is_sought)(const struct job *job, uint32_t pack))
{
	return read_ahead_find(scene_job("play"), is_sought) != SLOT_NONE;
}

static unsigned most_loans(void)
{
	return scene.node->staging->count - STAGING_LEAST;
}

/* ---- Between two steps ---- */

static void what_the_next_forward_begins_with_is_read(void **state)
{
	uint64_t expected = hash_after(STEPS), before;
	struct job *job = start();

	/* Whoever only gathers wants none of it. */
	scene_settle(&scene);
	assert_false(read_ahead_is_busy(job));
	train(0);
	scene_settle(&scene);
	assert_int_equal(scene.node->staging->lent, most_loans());
	assert_true(has(is_first));
	assert_false(has(is_last));
	assert_true(job_is_still(job));
	assert_false(job_is_at_rest(job));
	train(1);
	scene_settle(&scene);
	before = read_bytes(job);
	train(2);
	scene_settle(&scene);
	/* No byte twice, or for nothing. */
	assert_int_equal(read_bytes(job) - before, state_bytes_of_step());
	assert_true(training_hash(&actor, STEPS) == expected);
	training_end(&actor, job);
}

static void the_norm_may_clip_it(void **state)
{
	struct actor_job options[] = { options_of(PLACEMENT_HOST), streaming() };
	uint64_t hashes[ARRAY_LENGTH(options)];

	for (unsigned i = 0; i < ARRAY_LENGTH(options); i++) {
		options[i].clip_norm = 0.5f;
		struct job *job = start_with(&options[i]);

		for (uint64_t done = 0; done < STEPS; done++) {
			scene_settle(&scene);
			assert_int_equal(read_ahead_is_busy(job), done > 0 && i > 0);
			train(done);
		}
		hashes[i] = training_hash(&actor, STEPS);
		training_end(&actor, job);
	}
	assert_true(hashes[0] == hashes[1]);
}

static void before_the_decision_the_backward_begins_with_other_packs(void **state)
{
	uint64_t expected = hash_after(STEPS);
	struct job *job = start();

	for (uint64_t i = 0; i < STEPS; i++) {
		training_begin_step(&actor);
		scene_settle(&scene);
		assert_int_equal(has(is_last), i > 0);
		assert_false(has(is_first));
		for (uint32_t unit = UNITS; unit-- > 0;) {
			training_push(&actor, unit, training_gradient(unit, i));
			/* Each is updated, and then what comes next is read. */
			scene_settle(&scene);
		}
		assert_false(has(is_last));
		training_step(&actor);
	}
	assert_int_equal(job->update->early_updates, UNITS * STEPS);
	assert_true(training_hash(&actor, STEPS) == expected);
	training_end(&actor, job);
}

/* It is of use for the decision, too. */
static void gradients_may_come_in_another_order(void **state)
{
	uint64_t expected = hash_after(STEPS);
	struct job *job = start();

	for (uint64_t i = 0; i < STEPS; i++) {
		training_begin_step(&actor);
		scene_settle(&scene);
		for (uint32_t unit = 0; unit < UNITS; unit++)
			training_push(&actor, unit, training_gradient(unit, i));
		training_step(&actor);
	}
	assert_true(job->update->early_updates > 0);
	assert_true(training_hash(&actor, STEPS) == expected);
	training_end(&actor, job);
}

static void what_no_step_has_updated_is_not_read(void **state)
{
	struct job *job = start();

	training_push(&actor, LAST, training_gradient(LAST, 0));
	training_step(&actor);
	scene_settle(&scene);
	assert_true(has(is_last));
	assert_false(has(is_first));
	/* It is not held for a step that has nothing for it. */
	training_push(&actor, FIRST, training_gradient(FIRST, 1));
	training_step(&actor);
	scene_settle(&scene);
	assert_false(has(is_last));
	assert_true(has(is_first));
	assert_int_equal(job->step, 2);
	training_end(&actor, job);
}

/* From the last one on, as the library does: each is noted in the trace. */
static void gather_all(uint64_t version, uint32_t until)
{
	for (uint32_t unit = PLAY_UNITS; unit-- > until;) {
		(void)trace_append((struct lease_header *)actor.leases.base, &unit, 1);
		assert_int_equal(actor_gather(&actor, unit, version, NULL), 0);
		actor_release(&actor, unit);
	}
}

static void push_plays(void)
{
	for (uint32_t unit = 0; unit < PLAY_UNITS; unit++) {
		actor_fill(&actor, FORMAT_BF16, PLAY_ELEMENTS, 1);
		assert_int_equal(actor_await(&actor, actor_send_push(&actor, unit, 0), 0)->status, 0);
	}
}

static bool is_last_of_plays(const struct job *job, uint32_t pack)
{
	return is_of(job, pack, PLAY_UNITS - 1);
}

/* However far the forward pass is when the update ends. */
static void the_order_is_that_of_a_whole_pass(void **state)
{
	struct job *job = actor_play(&scene, &actor);

	for (uint64_t i = 0; i < STEPS; i++) {
		gather_all(i, 0);
		push_plays();
		training_step(&actor);
	}
	gather_all(STEPS, 0);
	push_plays();
	actor_send_step(&actor, 0.1f);
	gather_all(STEPS + 1, PLAY_UNITS / 2);
	scene_settle(&scene);
	assert_true(has(is_last_of_plays));
	assert_false(has(is_first));
	training_end(&actor, job);
}

static void a_step_that_is_skipped_changes_nothing_of_it(void **state)
{
	uint64_t before;
	struct job *job = start();

	train(0);
	scene_settle(&scene);
	before = read_bytes(job);
	for (uint32_t unit = 0; unit < UNITS; unit++)
		training_push(&actor, unit, NAN);
	training_step(&actor);
	scene_settle(&scene);
	assert_true(job->update->is_skipped);
	assert_int_equal(scene.node->staging->lent, most_loans());
	assert_int_equal(read_bytes(job), before);
	training_end(&actor, job);
}

/* ---- On its way ---- */

/* Some of it is asked for, and nothing of it has come. */
static struct job *stop_reading(uint64_t steps)
{
	struct job *job = start();

	for (uint64_t i = 0; i + 1 < steps; i++)
		train(i);
	training_push_all(&actor, steps - 1);
	actor_send_step(&actor, 0.1f);
	while (!read_ahead_is_reading(job) || job->step < steps)
		scene_wait(&scene);
	scene_hear_nothing_of_devices(&scene);
	return job;
}

/* The last step of a job that has made the others, of which what is read ahead is on its way. */
static void expect_wait(struct job *job, uint64_t before, uint64_t most)
{
	uint64_t expected = hash_after(STEPS);
	uint32_t ticket = actor_send_step(&actor, 0.1f);

	while (!job->update->sweep)
		scene_wait(&scene);
	for (unsigned i = 0; i < 10; i++)
		event_base_loop(scene.node->loop, EVLOOP_NONBLOCK);
	assert_true(read_ahead_is_reading(job));
	scene_hear_of_devices(&scene);
	assert_int_equal(actor_await(&actor, ticket, 0)->status, 0);
	scene_settle(&scene);
	assert_in_range(read_bytes(job) - before, state_bytes_of_step(), most);
	assert_true(training_hash(&actor, STEPS) == expected);
	training_end(&actor, job);
}

static void an_early_update_and_a_decision_wait_for_it(void **state)
{
	struct job *job;

	hash_after(STEPS);
	job = start();
	for (uint64_t i = 0; i + 1 < STEPS; i++) {
		training_begin_step(&actor);
		train(i);
		scene_settle(&scene);
	}
	uint64_t before = read_bytes(job);

	training_begin_step(&actor);
	/* Its update gives buffers back, and what comes next is read. */
	training_push(&actor, LAST, training_gradient(LAST, STEPS - 1));
	while (!read_ahead_is_reading(job))
		scene_wait(&scene);
	scene_hear_nothing_of_devices(&scene);
	for (uint32_t unit = LAST; unit-- > 0;)
		training_push(&actor, unit, training_gradient(unit, STEPS - 1));
	/* The sweep may want the buffers of what it comes to last. */
	expect_wait(job, before, state_bytes_of_step() + most_loans() * STAGING_BYTES);
}

/* Nor has a commit to be waited for. */
static void a_decision_waits_for_it(void **state)
{
	struct actor_job options = streaming();
	struct job *job;

	hash_after(STEPS);
	options.durability = DURABILITY_NONE;
	job = start_with(&options);
	for (uint64_t i = 0; i + 1 < STEPS; i++) {
		scene_settle(&scene);
		train(i);
	}
	/* What is asked for now was not read before that step. */
	while (!read_ahead_is_reading(job))
		scene_wait(&scene);
	uint64_t before = read_bytes(job);

	scene_hear_nothing_of_devices(&scene);
	training_push_all(&actor, STEPS - 1);
	expect_wait(job, before, state_bytes_of_step());
}

static void a_rank_that_dies_gives_it_back(void **state)
{
	struct actor_job again = streaming();
	uint64_t expected = hash_after(STEPS);
	struct job *job = stop_reading(STEPS - 1);

	actor_die(&actor);
	assert_false(job_is_still(job));
	scene_hear_of_devices(&scene);
	scene_settle(&scene);
	assert_true(job_is_at_rest(job));
	assert_int_equal(scene.node->staging->lent, 0);
	again.mode = MODE_RESUME;
	start_with(&again);
	assert_int_equal(actor.step, STEPS - 1);
	train(STEPS - 1);
	assert_true(training_hash(&actor, STEPS) == expected);
	training_end(&actor, job);
}

static void a_job_may_be_dropped_meanwhile(void **state)
{
	stop_reading(1);
	training_drop(&actor);
	assert_int_equal(scene.node->staging->lent, 0);
}

/* ---- Buffers ---- */

static struct staging_wish wishes[16];
static unsigned granted;
static struct staging_buffer *buffers[16];

static void on_granted(struct staging_wish *wish, struct staging_buffer *buffer)
{
	buffers[granted++] = buffer;
}

/* All that there are. */
static void want_all_buffers(void)
{
	unsigned count = scene.node->staging->count;

	granted = 0;
	for (unsigned i = 0; i < count; i++) {
		struct staging_buffer *buffer = staging_take(scene.node->staging, &wishes[i]);

		if (buffer)
			buffers[granted++] = buffer;
	}
	while (granted < count)
		scene_wait(&scene);
}

static void give_all_buffers(void)
{
	for (unsigned i = 0; i < granted; i++)
		staging_give(scene.node->staging, buffers[i]);
}

static void whoever_wants_its_buffers_gets_them(void **state)
{
	uint64_t expected = hash_after(STEPS);
	struct job *job;

	for (unsigned i = 0; i < ARRAY_LENGTH(wishes); i++)
		wishes[i].granted = on_granted;
	job = start();
	for (uint64_t i = 0; i < STEPS; i++) {
		/* Those of what is here, and of what is on its way. */
		if (i == 1)
			scene_settle(&scene);
		want_all_buffers();
		assert_false(read_ahead_is_busy(job));
		give_all_buffers();
		if (i == 2) {
			/* The first of it again, and not what comes after that. */
			job_settle(job);
			scene_settle(&scene);
			assert_true(has(is_first));
			assert_false(has(is_last));
		}
		train(i);
	}
	assert_true(training_hash(&actor, STEPS) == expected);
	training_end(&actor, job);
}

/* ---- How much a sweep begins ---- */

static uint64_t bytes_being_read(const struct sweep *sweep)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < sweep->chunk_count; i++)
		for (unsigned n = 0; n < CHUNK_STREAMS; n++) {
			const struct chunk_stream *stream = &sweep->chunks[i].streams[n];

			if (stream->is_moving && stream->transfer.direction == TIER_READ)
				bytes += stream->transfer.length;
		}
	return bytes;
}

static void a_sweep_begins_no_more_than_the_devices_are_given(void **state)
{
	static const uint64_t large[] = { 4 << 20, 4 << 20 };
	struct actor_job options = options_of(PLACEMENT_NVME);
	uint64_t most = engine_most_bytes(scene.node->engine), greatest = 0;
	uint32_t number;
	struct job *job;

	options.host_budget = find_need(large, ARRAY_LENGTH(large));
	job = training_start(&actor, &options, large, ARRAY_LENGTH(large));
	train(0);
	training_push_all(&actor, 1);
	number = actor_send_step(&actor, 0.1f);
	while (!job->update->sweep)
		scene_wait(&scene);
	while (job->update->sweep) {
		uint64_t bytes = bytes_being_read(job->update->sweep);

		greatest = bytes > greatest ? bytes : greatest;
		scene_wait(&scene);
	}
	assert_int_equal(actor_await(&actor, number, 0)->status, 0);
	assert_in_range(greatest, STAGING_BYTES, most + STAGING_BYTES);
	training_end(&actor, job);
}

/* ---- Faults ---- */

static unsigned told;
static const char *awaited;

static bool take_line(enum log_level level, const char *line, const struct log_fields *fields)
{
	told += strstr(line, awaited) != NULL;
	return true;
}

static bool has_failed(void)
{
	return told > 0;
}

/* How many reads a training has is not known: so each from the first one on fails, in a training of its own,
 * until one is met of which that is told. */
static void fail_reads(const char *kind, unsigned first, const char *line)
{
	uint64_t expected = hash_after(2);

	told = 0;
	awaited = line;
	log_divert(take_line);
	for (unsigned nth = first; nth < first + 40 && !has_failed(); nth++) {
		struct scene_options options = { .host_budget = GIB };
		char fault[64];

		snprintf(fault, sizeof(fault), "%s:read:%u", kind, nth);
		options.fault = fault;
		scene_close(&scene);
		assert_int_equal(scene_open(&options, &scene), 0);
		struct job *job = start();

		train(0);
		scene_settle(&scene);
		if (!has_failed()) {
			actor_die(&actor);
			continue;
		}
		assert_int_equal(job->state, JOB_TRAINED);
		train(1);
		assert_true(training_hash(&actor, 2) == expected);
		training_end(&actor, job);
	}
	log_divert(NULL);
	assert_true(has_failed());
}

static void what_cannot_be_read_is_told_and_read_again(void **state)
{
	fail_reads("complete", 20, "it was read ahead of its update");
}

static void what_does_not_match_its_checksum_is_told_and_read_again(void **state)
{
	fail_reads("corrupt", 1, "matches now that it was read once more");
}

static int setup(void **state)
{
	return scene_setup_with(&(struct scene_options){ .host_budget = GIB });
}

/* It is given less than the buffers have. */
static int setup_slow_device(void **state)
{
	return scene_setup_with(&(struct scene_options){ .host_budget = GIB, .background_bytes = MIB });
}

/* There are no more buffers than a sweep needs. */
static int setup_small(void **state)
{
	return scene_setup_with(&(struct scene_options){ .host_budget = 140 * MIB });
}

static void with_few_buffers_nothing_is_read_ahead(void **state)
{
	struct job *job = start();

	assert_int_equal(scene.node->staging->count, STAGING_LEAST);
	train(0);
	scene_settle(&scene);
	assert_null(job->update->read_ahead);
	training_end(&actor, job);
}

#define TEST(name) SCENE_TEST(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_the_next_forward_begins_with_is_read),
		TEST(the_norm_may_clip_it),
		TEST(before_the_decision_the_backward_begins_with_other_packs),
		TEST(gradients_may_come_in_another_order),
		TEST(what_no_step_has_updated_is_not_read),
		TEST(the_order_is_that_of_a_whole_pass),
		TEST(a_step_that_is_skipped_changes_nothing_of_it),
		TEST(an_early_update_and_a_decision_wait_for_it),
		TEST(a_decision_waits_for_it),
		TEST(a_rank_that_dies_gives_it_back),
		TEST(a_job_may_be_dropped_meanwhile),
		TEST(whoever_wants_its_buffers_gets_them),
		SCENE_TEST(a_sweep_begins_no_more_than_the_devices_are_given, setup_slow_device),
		TEST(what_cannot_be_read_is_told_and_read_again),
		TEST(what_does_not_match_its_checksum_is_told_and_read_again),
		SCENE_TEST(with_few_buffers_nothing_is_read_ahead, setup_small),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
