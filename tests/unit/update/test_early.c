/* Updates before the decision: the same bits as after it, seen by nobody until then, and gone without a trace
 * if the step is. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "daemon/durability/durable.h"
#include "daemon/gradients/gradients.h"
#include "daemon/gradients/spilled.h"
#include "daemon/residency/residency.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/early.h"
#include "daemon/update/own.h"
#include "daemon/update/sweep.h"
#include "daemon/update/update.h"
#include "tests/unit/seeds.h"
#include "tests/unit/test.h"
#include "tests/unit/training.h"

/* A pack of several chunks and extents, one of three units, and two more. */
#define UNITS 6
#define WIDE 0
#define PACKED 1
static const uint64_t elements[UNITS] = { 5 << 18, 300000, 200001, 300000, 1 << 20, (1 << 20) - 7 };
#define PACKS 4

/* Room for two of the largest packs. */
#define TIGHT_BUDGET (48 * MIB)
/* And for two buffers of sums. */
#define LEAST_BUDGET (40 * MIB)

static struct actor actor, other, watcher;

/* ---- A job ---- */

/* Nothing is spilled. */
static struct actor_job options_of(unsigned stage, uint32_t parameters)
{
	return (struct actor_job){ .stage = stage,
				   .parameter_placement = parameters,
				   .optimizer_placement = PLACEMENT_NVME,
				   .gradient_placement = PLACEMENT_HOST };
}

static struct job *start_with(const struct actor_job *options)
{
	return training_start(&actor, options, elements, UNITS);
}

static struct job *start(void)
{
	const struct actor_job options = options_of(3, PLACEMENT_NVME);

	return start_with(&options);
}

static unsigned count_in(const struct job *job, enum early_state state)
{
	unsigned count = 0;

	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		count += pack_update(job, pack)->early == state;
	return count;
}

static void await_early(const struct job *job, unsigned packs)
{
	while (count_in(job, EARLY_READY) < packs)
		scene_wait(&scene);
}

/* All of the open step, but for its end; where there are few buffers for sums, before they are wanted again.
 */
static void go_ahead(struct job *job, uint64_t step)
{
	static const unsigned complete[UNITS] = { 4, 3, 2, 2, 2, 1 };

	training_begin_step(&actor);
	for (uint32_t unit = UNITS; unit-- > 0;) {
		training_push(&actor, unit, training_gradient(unit, step));
		await_early(job, complete[unit]);
	}
}

/* A step that is announced, and of which one unit is not finite. */
static void push_nan(void)
{
	training_begin_step(&actor);
	for (uint32_t unit = UNITS; unit-- > 0;)
		training_push(&actor, unit, unit == WIDE ? NAN : 3.0f);
}

/* ---- As nobody announced it ---- */

#define STEPS 3

struct trained {
	double norms[STEPS];
	uint64_t hash;
};

enum manner { NOT_ANNOUNCED, ALL_EARLY, AS_IT_COMES };

static struct trained train(const struct actor_job *options, enum manner manner)
{
	struct trained trained = { { 0 } };
	struct job *job = start_with(options);

	for (uint64_t i = 0; i < STEPS; i++) {
		if (manner == ALL_EARLY)
			go_ahead(job, i);
		else if (manner == AS_IT_COMES)
			training_begin_step(&actor);
		if (manner != ALL_EARLY)
			training_push_all(&actor, i);
		trained.norms[i] = training_step(&actor);
	}
	trained.hash = training_hash(&actor, STEPS);
	if (manner != AS_IT_COMES)
		assert_int_equal(job->update->early_updates, manner == ALL_EARLY ? UNITS * STEPS : 0);
	/* Those that are updated in time are not spilled. */
	if (options->gradient_placement == PLACEMENT_NVME) {
		uint64_t spilled = figures_of(job)->bytes[STATISTICS_GRADIENT][STATISTICS_WRITTEN];

		assert_true(job->gradients->spill->buffer_count < PACKS);
		if (manner != AS_IT_COMES)
			assert_int_equal(spilled > 0, manner == NOT_ANNOUNCED);
	}
	training_end(&actor, job);
	return trained;
}

/* What all tests compare with, on NVMe. */
static uint64_t hash_after(unsigned steps)
{
	static uint64_t hashes[STEPS + 1];

	if (hashes[steps])
		return hashes[steps];
	struct job *job = start();

	for (uint64_t i = 0; i < steps; i++) {
		training_push_all(&actor, i);
		training_step(&actor);
	}
	hashes[steps] = training_hash(&actor, steps);
	training_end(&actor, job);
	return hashes[steps];
}

static void the_bits_are_those_of_a_step_that_nobody_announced(void **state)
{
	struct actor_job options[] = { options_of(3, PLACEMENT_NVME), options_of(3, PLACEMENT_NVME),
				       options_of(3, PLACEMENT_NVME), options_of(3, PLACEMENT_HOST),
				       options_of(2, PLACEMENT_HOST), options_of(0, PLACEMENT_HOST) };

	options[1].host_budget = TIGHT_BUDGET;
	options[2].host_budget = LEAST_BUDGET;
	options[2].gradient_placement = PLACEMENT_NVME;
	FOREACH_CASE (i, ARRAY_LENGTH(options)) {
		struct trained plain = train(&options[i], NOT_ANNOUNCED);

		for (int manner = ALL_EARLY; manner <= AS_IT_COMES; manner++) {
			struct trained early = train(&options[i], (enum manner)manner);

			assert_memory_equal(early.norms, plain.norms, sizeof(plain.norms));
			assert_true(early.hash == plain.hash);
		}
	}
}

/* ---- Before the decision ---- */

static void expect_parameters(uint64_t version, bool is_new)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		const void *address;
		uint32_t one = unit % 2 ? 0x3f800000 : 0x3f803f80;

		assert_int_equal(actor_gather(&actor, unit, version, &address), 0);
		assert_int_equal(
			memcmp((const char *)address +
				       actor_section(&actor, unit, unit % 2 ? SECTION_FP32 : SECTION_BF16),
			       &one, sizeof(one)) != 0,
			is_new);
		actor_release(&actor, unit);
	}
}

static void expect_moment(uint32_t unit, uint64_t version, bool is_new)
{
	float *values = (float *)actor.window.base;

	assert_int_equal(actor_read(&actor, unit, 0, "m", elements[unit] - 100, 100, version), 0);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(values[i] != 0, is_new);
}

static void nobody_sees_anything_before_the_decision(void **state)
{
	const struct actor_job options[] = { options_of(3, PLACEMENT_NVME), options_of(3, PLACEMENT_HOST) };

	for (unsigned i = 0; i < ARRAY_LENGTH(options); i++) {
		struct job *job = start_with(&options[i]);

		go_ahead(job, 0);
		assert_int_equal(job->step + job->decided + job->update->early_updates, 0);
		expect_parameters(0, false);
		expect_moment(WIDE, 0, false);
		expect_moment(PACKED, 0, false);
		assert_true(isfinite(training_step(&actor)));
		expect_parameters(1, true);
		expect_moment(WIDE, 1, true);
		expect_moment(PACKED, 1, true);
		training_end(&actor, job);
	}
}

static void nothing_is_early_before_the_last_step_is_committed(void **state)
{
	struct actor_job options = options_of(3, PLACEMENT_NVME);
	uint64_t expected = hash_after(2);
	struct job *job;

	options.durability = DURABILITY_MOST_SECONDS;
	job = start_with(&options);
	/* The first commit is due at once. */
	while (!durable_is_quiet(job) || durable_is_behind(job))
		scene_wait(&scene);
	training_push_all(&actor, 0);
	training_step(&actor);
	training_begin_step(&actor);
	training_push_all(&actor, 1);
	scene_settle(&scene);
	assert_true(durable_is_behind(job) && !job->update->early);
	durable_hurry(job);
	await_early(job, PACKS);
	training_step(&actor);
	assert_true(training_hash(&actor, 2) == expected);
	training_end(&actor, job);
}

static unsigned free_buffers(void)
{
	unsigned count = 0;

	QUEUE_FOREACH (link, &scene.node->staging->free)
		count++;
	return count;
}

static void half_of_the_buffers_are_left_for_the_sweep(void **state)
{
	unsigned count = scene.node->staging->count, least = count;
	struct job *job = start();

	training_begin_step(&actor);
	training_push_all(&actor, 0);
	for (; count_in(job, EARLY_READY) < PACKS; scene_wait(&scene))
		if (free_buffers() < least)
			least = free_buffers();
	assert_in_range(least, count / 2, count - 1);
	assert_true(isfinite(training_step(&actor)));
	training_end(&actor, job);
}

/* At the decision they have to be copied to slots, where there are some; no byte is read or written. */
static void the_decision_moves_no_bytes(void **state)
{
	const struct scene_options options = { .reads_nothing_ahead = true };

	scene_close(&scene);
	assert_int_equal(scene_open(&options, &scene), 0);
	struct job *job = start();

	go_ahead(job, 0);
	uint64_t read = figures_of(job)->bytes[STATISTICS_UPDATE][STATISTICS_READ];
	uint64_t written = figures_of(job)->bytes[STATISTICS_UPDATE][STATISTICS_WRITTEN];

	training_step(&actor);
	assert_int_equal(figures_of(job)->bytes[STATISTICS_UPDATE][STATISTICS_READ], read);
	assert_int_equal(figures_of(job)->bytes[STATISTICS_UPDATE][STATISTICS_WRITTEN], written);
	assert_int_equal(job->update->early_updates, UNITS);
}

/* The sweep saves for it what early updates have left behind them; it looks at few pieces before that. */
static void expect_reader_between(const struct actor_job *options, uint64_t expected)
{
	struct job *job = start_with(options);
	struct training_ends ends;
	uint32_t reader, refresh;

	training_push_all(&actor, 0);
	training_step(&actor);
	training_note_ends(&actor, "m", 1, &ends);
	go_ahead(job, 1);
	refresh = training_send_refresh(&watcher, "m", &reader);
	training_step(&actor);
	assert_int_equal(actor_await(&watcher, refresh, 0)->status, 0);
	training_expect_ends(&watcher, reader, 1, &ends);
	actor_die(&watcher);
	assert_true(training_hash(&actor, 2) == expected);
	training_end(&actor, job);
}

static void a_reader_that_comes_between_sees_the_step_before(void **state)
{
	struct actor_job options = options_of(3, PLACEMENT_NVME);
	uint64_t expected = hash_after(2);

	expect_reader_between(&options, expected);
	/* Some packs have no slot. */
	options.host_budget = TIGHT_BUDGET;
	expect_reader_between(&options, expected);
	options.host_budget = LEAST_BUDGET;
	options.gradient_placement = PLACEMENT_NVME;
	expect_reader_between(&options, expected);
}

/* ---- Ends ---- */

static void come_back_with(const struct actor_job *options)
{
	struct actor_job again = *options;

	again.mode = MODE_RESUME;
	start_with(&again);
}

static void come_back(void)
{
	const struct actor_job options = options_of(3, PLACEMENT_NVME);

	come_back_with(&options);
}

/* More often than there are places. */
static void expect_return(const struct actor_job *options, uint64_t expected)
{
	struct job *job = start_with(options);

	training_push_all(&actor, 0);
	training_step(&actor);
	for (unsigned i = 0; i < 8; i++) {
		training_begin_step(&actor);
		training_push_all(&actor, 17 + i);
		/* If sums are spilled, nobody knows how many come so far. */
		await_early(job, spill_is_used(job) ? 0 : i % (PACKS + 1));
		actor_die(&actor);
		come_back_with(options);
		assert_int_equal(actor.step, 1);
		assert_int_equal(count_in(job, EARLY_NOTHING), PACKS);
	}
	/* Nothing is held back any more, whoever writes. */
	training_push_all(&actor, 1);
	training_step(&actor);
	assert_int_equal(job->update->early_updates, 0);
	assert_true(training_hash(&actor, 2) == expected);
	training_end(&actor, job);
}

static void a_rank_that_dies_takes_its_early_updates_with_it(void **state)
{
	struct actor_job options = options_of(3, PLACEMENT_NVME);
	uint64_t expected = hash_after(2);

	expect_return(&options, expected);
	options.host_budget = LEAST_BUDGET;
	options.gradient_placement = PLACEMENT_NVME;
	expect_return(&options, expected);
}

static void who_announces_and_leaves_leaves_nothing_behind(void **state)
{
	const struct job *job = start();

	training_begin_step(&actor);
	while (!job->update->early)
		scene_wait(&scene);
	assert_int_equal(actor_await(&actor, actor_send_leave(&actor, false), 0)->status, 0);
	scene_settle(&scene);
	assert_null(job->update->early);
}

static void a_daemon_that_dies_takes_them_with_it(void **state)
{
	uint64_t expected = hash_after(2);
	struct job *job = start();
	uint32_t ticket;

	training_push_all(&actor, 0);
	ticket = actor_send_step(&actor, 0.1f);
	assert_int_equal(actor_await(&actor, ticket, 1)->status, 0);
	go_ahead(job, 20);
	actor_die(&actor);
	assert_int_equal(scene_restart(&(struct scene_options){ 0 }, &scene), 0);
	come_back();
	assert_int_equal(actor.step, 1);
	go_ahead(scene_job("play"), 1);
	training_step(&actor);
	assert_true(training_hash(&actor, 2) == expected);
}

/* The step is skipped, or refused, and its gradients can be pushed again. */
static void gradients_that_are_not_finite_end_them(void **state)
{
	static const float last[] = { [NONFINITE_SKIP] = NAN, [NONFINITE_REPORT] = INFINITY };
	uint64_t expected = hash_after(1);

	for (unsigned nonfinite = NONFINITE_SKIP; nonfinite <= NONFINITE_REPORT; nonfinite++) {
		bool is_skipped = nonfinite == NONFINITE_SKIP;
		struct actor_job options = options_of(3, PLACEMENT_NVME);
		const struct answer *answer;
		struct job *job;

		options.nonfinite = nonfinite;
		job = start_with(&options);
		training_begin_step(&actor);
		for (uint32_t unit = UNITS; unit-- > 1;)
			training_push(&actor, unit, 3.0f);
		await_early(job, PACKS - 1);
		training_push(&actor, WIDE, last[nonfinite]);
		answer = actor_await(&actor, actor_send_step(&actor, 0.1f), 0);
		assert_int_equal(answer->status, is_skipped ? 0 : -EDOM);
		assert_true(!is_skipped || answer->reply->step->is_skipped);
		assert_int_equal(job->update->early_updates, 0);
		go_ahead(job, 0);
		assert_true(isfinite(training_step(&actor)));
		assert_int_equal(job->update->early_updates, UNITS);
		assert_true(training_hash(&actor, is_skipped ? 2 : 1) == expected);
		training_end(&actor, job);
	}
}

/* Though some of it is still on its way. */
static void nothing_of_a_skipped_step_is_in_the_next_one(void **state)
{
	uint64_t expected, last = hash_after(1);

	start();
	expected = training_hash(&actor, 0);
	for (unsigned i = 0; i < 3; i++) {
		push_nan();
		assert_false(isfinite(training_step(&actor)));
		/* Of nothing. */
		assert_true(training_step(&actor) == 0);
	}
	assert_true(training_hash(&actor, 6) == expected);
	push_nan();
	assert_false(isfinite(training_step(&actor)));
	training_push_all(&actor, 0);
	assert_true(isfinite(training_step(&actor)));
	assert_true(training_hash(&actor, 8) == last);
}

static void drop_step(void)
{
	const struct answer *answer;

	actor.is_dropping = true;
	answer = actor_await(&actor, actor_send_step(&actor, 0), 0);
	actor.is_dropping = false;
	assert_int_equal(answer->status, 0);
	assert_true(answer->reply->step->is_skipped);
}

/* Though it was announced as one that counts; and what is not finite in it is nobody's business. */
static void nothing_of_a_dropped_step_is_left(void **state)
{
	uint64_t expected = hash_after(1);
	struct actor_job options = options_of(3, PLACEMENT_NVME);
	struct job *job;

	options.nonfinite = NONFINITE_REPORT;
	job = start_with(&options);
	go_ahead(job, 7);
	drop_step();
	assert_int_equal(job->update->early_updates, 0);
	push_nan();
	drop_step();
	go_ahead(job, 0);
	training_step(&actor);
	assert_int_equal(job->update->early_updates, UNITS);
	assert_true(training_hash(&actor, 3) == expected);
}

static void a_step_that_is_announced_as_dropped_has_nothing_early(void **state)
{
	struct job *job = start();

	actor.is_dropping = true;
	training_begin_step(&actor);
	training_push_all(&actor, 0);
	scene_settle(&scene);
	assert_null(job->update->early);
	drop_step();
}

/* Until the job is broken, or has made a step. */
static void go_on_until_it_breaks(struct job *job)
{
	training_begin_step(&actor);
	for (uint32_t unit = UNITS; unit-- > 0 && !job_is_broken(job);) {
		training_fill(&actor, unit, 1.0f);
		actor_await(&actor, actor_send_push(&actor, unit, 0), 0);
	}
	while (!job_is_broken(job) && count_in(job, EARLY_READY) < PACKS)
		scene_wait(&scene);
	if (!job_is_broken(job))
		training_step(&actor);
}

/* Of a rank that dies while they are on their way. */
static void withdraw_reads(struct job *job)
{
	scene_settle(&scene);
	training_begin_step(&actor);
	actor_send_push(&actor, WIDE, 0);
	scene_hear_nothing_of_devices(&scene);
	while (!update_is_writing(job, job->catalog.units[WIDE].pack))
		scene_wait(&scene);
	actor_die(&actor);
	while (!early_is_ending(job))
		scene_wait(&scene);
	scene_hear_of_devices(&scene);
	scene_settle(&scene);
	assert_null(job->update->early);
}

static unsigned told;

static bool take_line(enum log_level level, const char *line, const struct log_fields *fields)
{
	told += strstr(line, "that update had been withdrawn") != NULL;
	return true;
}

/* Moments are still zeros, of which there is nothing to read, but the masters are there. */
static void what_cannot_be_read_of_one_that_is_withdrawn_is_told(void **state)
{
	struct job *job;

	scene_close(&scene);
	assert_int_equal(
		scene_open(&(struct scene_options){ .fault = "complete:read:1:EIO:lasting" }, &scene), 0);
	job = start();
	told = 0;
	log_divert(take_line);
	withdraw_reads(job);
	log_divert(NULL);
	assert_true(told > 0);
	assert_int_equal(job->state, JOB_TRAINED);
}

/* It ends as after the decision, with nothing on its way; the first reads of all are those of an update. */
static void what_cannot_be_read_or_written_breaks_the_job(void **state)
{
	static const char *const faults[] = { "complete:read:1:EIO:lasting", "complete:read:9:EIO:lasting",
					      "complete:write:50:EIO:lasting",
					      "complete:write:70:EIO:lasting",
					      "submit:write:75:EIO:lasting" };

	for (unsigned i = 0; i < ARRAY_LENGTH(faults); i++) {
		scene_close(&scene);
		assert_int_equal(scene_open(&(struct scene_options){ .fault = faults[i] }, &scene), 0);
		struct job *job = start();

		go_on_until_it_breaks(job);
		assert_int_equal(job->state, JOB_BROKEN);
		assert_int_equal(job->decided + job->update->early_updates, 0);
		scene_settle(&scene);
		assert_null(job->update->early);
		actor_die(&actor);
		scene_settle(&scene);
	}
}

/* All is decided but one pack, which somebody still has a lease on. */
static struct job *keep_a_lease(void)
{
	struct job *job = start();

	assert_int_equal(actor_gather(&actor, WIDE, 0, NULL), 0);
	actor_release(&actor, WIDE);
	go_ahead(job, 0);
	actor_send_step(&actor, 0.1f);
	lease_counters((struct lease_header *)actor.leases.base, actor.buffer_count)[WIDE]++;
	while (job->decided == 0 || count_in(job, EARLY_READY) != 1)
		scene_wait(&scene);
	return job;
}

static void a_lease_that_is_kept_holds_up_no_step(void **state)
{
	uint64_t expected = hash_after(1);
	struct job *job = keep_a_lease();

	/* Its patience is over. */
	job->update->decided_ns -= UINT64_C(1100000000);
	while (job->step == 0)
		scene_wait(&scene);
	assert_true(actor.is_closed);
	assert_int_equal(job->update->early_updates, UNITS);
	actor_die(&actor);
	come_back();
	assert_int_equal(actor.step, 1);
	assert_true(training_hash(&actor, 1) == expected);
}

static void a_job_that_is_dropped_in_its_sweep_leaves_nothing_behind(void **state)
{
	keep_a_lease();
	training_drop(&actor);
}

/* ---- Adopted while it is being written ---- */

/* The second step is decided, and of the pack of WIDE nobody has heard yet that it is written: no more comes
 * of devices until they are heard again. */
static void adopt_while_it_is_written(struct job *job)
{
	const struct pack_update *update = pack_update(job, job->catalog.units[WIDE].pack);

	training_push_all(&actor, 0);
	training_step(&actor);
	scene_settle(&scene);
	training_begin_step(&actor);
	for (uint32_t unit = UNITS; unit-- > WIDE + 1;)
		training_push(&actor, unit, training_gradient(unit, 1));
	await_early(job, PACKS - 1);
	training_fill(&actor, WIDE, training_gradient(WIDE, 1));
	actor_send_push(&actor, WIDE, 0);
	while (update->early != EARLY_WRITING)
		scene_wait(&scene);
	scene_hear_nothing_of_devices(&scene);
	actor_send_step(&actor, 0.1f);
	while (update->early == EARLY_WRITING)
		scene_wait(&scene);
	assert_int_equal(update->early, EARLY_ADOPTED);
}

static void what_is_computed_is_seen_before_it_is_written(void **state)
{
	uint64_t expected = hash_after(2);
	struct job *job = start();
	uint32_t pack = job->catalog.units[WIDE].pack;
	const void *address;

	adopt_while_it_is_written(job);
	assert_int_equal(actor_gather(&actor, WIDE, 2, &address), 0);
	assert_int_equal(pack_update(job, pack)->early, EARLY_ADOPTED);
	actor_release(&actor, WIDE);
	/* It is nowhere else. */
	assert_true(residency_is_in_use(job, pack) && !residency_is_pinned(job, pack));
	assert_int_equal(job->step, 1);
	scene_hear_of_devices(&scene);
	scene_settle(&scene);
	assert_false(residency_is_in_use(job, pack));
	assert_int_equal(job->step, 2);
	assert_true(training_hash(&actor, 2) == expected);
	training_end(&actor, job);
}

static void the_next_step_is_summed_meanwhile(void **state)
{
	uint64_t expected = hash_after(3);
	struct job *job = start();

	adopt_while_it_is_written(job);
	training_push(&actor, WIDE, training_gradient(WIDE, 2));
	scene_hear_of_devices(&scene);
	for (uint32_t unit = UNITS; unit-- > WIDE + 1;)
		training_push(&actor, unit, training_gradient(unit, 2));
	training_step(&actor);
	assert_true(training_hash(&actor, 3) == expected);
	training_end(&actor, job);
}

static void a_job_may_be_dropped_meanwhile(void **state)
{
	adopt_while_it_is_written(start());
	training_drop(&actor);
}

/* ---- Not early ---- */

static void without_what_a_step_needs_there_is_nothing_early(void **state)
{
	struct actor_job options[] = { options_of(3, PLACEMENT_NVME), options_of(3, PLACEMENT_NVME),
				       options_of(3, PLACEMENT_HOST) };

	options[0].optimizer = OPTIMIZER_NONE;
	options[1].durability = DURABILITY_NONE;
	options[2].optimizer_placement = PLACEMENT_HOST;
	for (unsigned i = 0; i < ARRAY_LENGTH(options); i++) {
		struct job *job = start_with(&options[i]);

		training_begin_step(&actor);
		training_push_all(&actor, 0);
		scene_settle(&scene);
		assert_null(job->update->early);
		training_end(&actor, job);
	}
}

static void clip_steps(float clip_norm)
{
	actor.has_clip_norm = true;
	actor.clip_norm = clip_norm;
}

/* After a step that is announced and clips to 1, as its job does or as it says itself. */
static uint64_t hash_clipped(bool is_by_step)
{
	struct actor_job options = options_of(3, PLACEMENT_NVME);
	struct job *job;
	uint64_t hash;

	options.clip_norm = is_by_step ? 0.0f : 1.0f;
	job = start_with(&options);
	if (is_by_step)
		clip_steps(1.0f);
	training_begin_step(&actor);
	training_push_all(&actor, 0);
	scene_settle(&scene);
	assert_null(job->update->early);
	assert_true(training_step(&actor) > 1);
	hash = training_hash(&actor, 1);
	training_end(&actor, job);
	return hash;
}

static void nothing_is_early_of_a_step_that_clips(void **state)
{
	uint64_t clipped = hash_clipped(true);

	assert_true(clipped == hash_clipped(false));
	assert_true(clipped != hash_after(1));
}

static void a_step_that_does_not_clip_is_early_though_others_do(void **state)
{
	uint64_t expected = hash_after(1);
	struct actor_job options = options_of(3, PLACEMENT_NVME);
	struct job *job;

	options.clip_norm = 1.0f;
	job = start_with(&options);
	clip_steps(0);
	go_ahead(job, 0);
	assert_true(training_step(&actor) > 1);
	assert_int_equal(job->update->early_updates, UNITS);
	assert_true(training_hash(&actor, 1) == expected);
}

static struct job *start_two(void)
{
	struct actor_job options = options_of(3, PLACEMENT_NVME);

	options.world_size = 2;
	training_open(&actor, &options, elements, UNITS);
	options.rank = 1;
	training_open(&other, &options, elements, UNITS);
	actor_ready_both(&actor, &other);
	return scene_job("play");
}

/* A micro-batch of both ranks. */
static void push_both(void)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		training_fill(&actor, unit, 1.0f);
		uint32_t push = actor_send_push(&actor, unit, 0);

		training_push(&other, unit, 2.0f);
		assert_int_equal(actor_await(&actor, push, 0)->status, 0);
	}
}

static void all_ranks_have_to_announce_the_same_rates(void **state)
{
	const struct job *job = start_two();

	training_begin_step(&actor);
	push_both();
	scene_settle(&scene);
	assert_null(job->update->early);
	assert_int_equal(actor_begin_step(&other, -0.1f, 1), 0);
	scene_settle(&scene);
	assert_null(job->update->early);
	actor_die(&other);
}

/* Of a rank that has announced less than another nothing can come any more, but that is certain only when it
 * has closed its part. */
static void the_last_micro_batch_of_any_rank_completes_a_unit(void **state)
{
	const struct job *job = start_two();
	uint32_t step_of_other;

	assert_int_equal(actor_begin_step(&actor, 0.1f, 2), 0);
	assert_int_equal(actor_begin_step(&other, 0.1f, 1), 0);
	push_both();
	actor_send_push(&actor, WIDE, 0);
	scene_settle(&scene);
	assert_non_null(job->update->early);
	assert_int_equal(count_in(job, EARLY_NOTHING), PACKS);
	step_of_other = actor_send_step(&other, 0.1f);
	await_early(job, 1);
	assert_int_equal(pack_update(job, job->catalog.units[WIDE].pack)->early, EARLY_READY);
	assert_true(isfinite(training_step(&actor)));
	assert_int_equal(actor_await(&other, step_of_other, 0)->status, 0);
	assert_int_equal(job->update->early_updates, 1);
	actor_die(&other);
}

#define TEST(name) SCENE_TEST(name, scene_setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(the_bits_are_those_of_a_step_that_nobody_announced),
		TEST(nobody_sees_anything_before_the_decision),
		TEST(nothing_is_early_before_the_last_step_is_committed),
		TEST(half_of_the_buffers_are_left_for_the_sweep),
		TEST(the_decision_moves_no_bytes),
		TEST(a_reader_that_comes_between_sees_the_step_before),
		TEST(a_rank_that_dies_takes_its_early_updates_with_it),
		TEST(who_announces_and_leaves_leaves_nothing_behind),
		TEST(a_daemon_that_dies_takes_them_with_it),
		TEST(gradients_that_are_not_finite_end_them),
		TEST(nothing_of_a_skipped_step_is_in_the_next_one),
		TEST(nothing_of_a_dropped_step_is_left),
		TEST(a_step_that_is_announced_as_dropped_has_nothing_early),
		TEST(what_cannot_be_read_of_one_that_is_withdrawn_is_told),
		TEST(what_cannot_be_read_or_written_breaks_the_job),
		TEST(a_lease_that_is_kept_holds_up_no_step),
		TEST(a_job_that_is_dropped_in_its_sweep_leaves_nothing_behind),
		TEST(what_is_computed_is_seen_before_it_is_written),
		TEST(the_next_step_is_summed_meanwhile),
		TEST(a_job_may_be_dropped_meanwhile),
		TEST(without_what_a_step_needs_there_is_nothing_early),
		TEST(nothing_is_early_of_a_step_that_clips),
		TEST(a_step_that_does_not_clip_is_early_though_others_do),
		TEST(all_ranks_have_to_announce_the_same_rates),
		TEST(the_last_micro_batch_of_any_rank_completes_a_unit),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
