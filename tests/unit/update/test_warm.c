/* Warm state: the bits are those of a training that reads all of it at each step, however much of it there is
 * and whoever takes the memory; it is spread over the sweep, and goes before any slot. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/durability/durable.h"
#include "daemon/durability/own.h"
#include "daemon/durability/store_task.h"
#include "daemon/gradients/gradients.h"
#include "daemon/life/idle.h"
#include "daemon/residency/cache.h"
#include "daemon/residency/residency.h"
#include "daemon/residency/segment.h"
#include "daemon/update/own.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/update/warm_inside.h"
#include "tests/unit/seeds.h"
#include "tests/unit/test.h"
#include "tests/unit/training.h"

/* Packs of several chunks, and of several units; fp32 and bf16 in turns. Of one size there are three. */
#define UNITS 9
static const uint64_t elements[UNITS] = { 5 << 18,	 300000,  200001, 300000, 1 << 20,
					  (1 << 20) - 7, 1 << 20, 5000,	  1 << 20 };
#define STEPS 4
#define NODE_BUDGET (144 * MIB)

static struct actor actor, other, watcher;

static int setup(void **state)
{
	return scene_setup_with(&(struct scene_options){ .host_budget = NODE_BUDGET, .capacity = GIB });
}

/* ---- A job ---- */

static struct actor_job options_of(uint32_t parameters_on, uint64_t host_budget)
{
	return (struct actor_job){ .stage = 3,
				   .host_budget = host_budget,
				   .parameter_placement = parameters_on,
				   .optimizer_placement = PLACEMENT_NVME,
				   .gradient_placement = PLACEMENT_HOST };
}

static struct job *start_with(struct actor *who, const struct actor_job *options)
{
	return training_start(who, options, elements, UNITS);
}

static struct job *start(uint32_t parameters_on, uint64_t host_budget)
{
	const struct actor_job options = options_of(parameters_on, host_budget);

	return start_with(&actor, &options);
}

/* Its rank has died. */
static void come_back(uint32_t durability)
{
	struct actor_job options = options_of(PLACEMENT_NVME, 0);

	options.durability = durability;
	options.mode = MODE_RESUME;
	start_with(&actor, &options);
}

static void take_step(struct actor *who, uint64_t step)
{
	training_push_all(who, step);
	training_step(who);
	/* What comes or goes then is there before the next one. */
	scene_settle(&scene);
}

static uint64_t read_bytes(const struct job *job)
{
	return figures_of(job)->bytes[STATISTICS_UPDATE][STATISTICS_READ];
}

/* ---- Chunks ---- */

struct chunk_place {
	uint32_t pack;
	enum unit_section section;
	uint64_t first, bytes;
};

#define PLACES 64

static unsigned list_chunks(const struct job *job, struct chunk_place *places)
{
	unsigned count = 0;

	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		for (int i = 0; i < UNIT_TRAINABLE_SECTIONS; i++) {
			enum unit_section section = (enum unit_section)i;
			uint64_t most = 4 * CHUNK_ELEMENTS;
			uint64_t all = job->catalog.packs[pack].elements[i];

			for (uint64_t first = 0; first < all; first += most) {
				uint64_t length = all - first < most ? all - first : most;

				assert_true(count < PLACES);
				places[count++] = (struct chunk_place){
					pack, section, first, state_all_bytes(&job->options, section, length)
				};
			}
		}
	return count;
}

/* False: it has no memory. */
static bool is_warm(struct job *job, const struct chunk_place *place, bool *ret_is_filled)
{
	struct warm_range *range =
		warm_take(job, place->pack, place->section, place->first, false, ret_is_filled);

	if (range)
		warm_give(job, range, place->section, place->first, *ret_is_filled);
	return range;
}

/* ---- Reads ---- */

/* The second sweep finds what the first one has read; what was given room after it is filled by that one. */
static void what_is_warm_is_not_read_again(void **state)
{
	struct job *job = start(PLACEMENT_HOST, 0);
	struct chunk_place places[PLACES];
	unsigned count;
	uint64_t read;

	take_step(&actor, 0);
	take_step(&actor, 1);
	count = list_chunks(job, places);
	for (unsigned i = 0; i < count; i++) {
		bool is_filled = false;

		assert_true(is_warm(job, &places[i], &is_filled) && is_filled);
	}
	read = read_bytes(job);
	take_step(&actor, 2);
	assert_int_equal(read_bytes(job), read);
	training_end(&actor, job);
}

#define PACKS 200

/* By more than so many ranges it is nowhere ahead of the sweep as a whole, or behind. */
#define AHEAD 4

static void expect_even(const struct warm *warm, uint32_t segments)
{
	double warm_count = 0, all = 0, at = 0;

	for (uint32_t i = 0; i < PACKS; i++)
		all += warm->ranges[i].segment < segments;
	for (uint32_t i = 0; i < PACKS; i++) {
		warm_count += warm->ranges[i].segment < segments;
		at = all * (i + 1) / PACKS;
		assert_true(warm_count <= at + AHEAD && at <= warm_count + AHEAD);
	}
}

/* However many segments there are. */
static void it_is_spread_over_the_sweep(void **state)
{
	struct node node = { .settings.host_budget = TIB };
	struct job job = { .node = &node, .options.slot_count = 2, .catalog.pack_count = PACKS };
	struct warm *warm = calloc(1, sizeof(*warm));
	uint32_t segments = 0;

	assert_int_equal(budget_new(&job), 0);
	job.catalog.packs = calloc(PACKS, sizeof(struct pack));
	warm->job = &job;
	warm->first_range = calloc(PACKS + 1, sizeof(*warm->first_range));
	warm->ranges = calloc(PACKS, sizeof(*warm->ranges));
	for (uint32_t i = 0; i < PACKS; i++)
		job.catalog.packs[i].elements[SECTION_BF16] = RANGE_ELEMENTS;
	warm_plan(warm, warm_measure(&job));
	while (segments < SEGMENTS_MOST && warm->segments[segments].bytes > 0)
		expect_even(warm, ++segments);
	assert_true(segments > SEGMENTS_USUAL / 2);
	free(job.resources);
	free(job.catalog.packs);
	free(warm->first_range);
	free(warm->ranges);
	free(warm);
}

/* ---- Bits ---- */

static uint64_t train(uint32_t parameters_on, uint64_t host_budget, bool is_announced)
{
	struct job *job = start(parameters_on, host_budget);
	uint64_t hash;

	for (uint64_t i = 0; i < STEPS; i++) {
		if (is_announced)
			training_begin_step(&actor);
		take_step(&actor, i);
	}
	hash = training_hash(&actor, STEPS);
	training_end(&actor, job);
	return hash;
}

static void the_bits_are_the_same_with_any_part_of_it(void **state)
{
	struct job *job = start(PLACEMENT_HOST, 0);
	uint64_t least, expected, state_bytes;

	take_step(&actor, 0);
	least = promised_bytes(job);
	state_bytes = warm_bytes_here(job);
	training_end(&actor, job);
	expected = train(PLACEMENT_HOST, least, false);
	FOREACH_CASE (i, 4) {
		unsigned quarter = i + 1;
		uint64_t budget = least + state_bytes * quarter / 4;

		assert_true(train(PLACEMENT_HOST, budget, quarter % 2) == expected);
		assert_true(train(PLACEMENT_NVME, budget, quarter % 2 == 0) == expected);
	}
}

/* What is committed at each step. */
static uint64_t hash_after(unsigned steps)
{
	static uint64_t hashes[8];

	assert_true(steps < ARRAY_LENGTH(hashes));
	if (hashes[steps])
		return hashes[steps];
	struct job *job = start(PLACEMENT_NVME, 0);

	for (uint64_t i = 0; i < steps; i++)
		take_step(&actor, i);
	hashes[steps] = training_hash(&actor, steps);
	training_end(&actor, job);
	return hashes[steps];
}

static unsigned count_early(const struct job *job)
{
	unsigned count = 0;

	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		count += pack_update(job, pack)->early == EARLY_READY;
	return count;
}

/* What was updated early for a step that comes to nothing is not what the store has. */
static void what_is_withdrawn_is_read_again(void **state)
{
	uint64_t expected = hash_after(3), read;
	struct job *job = start(PLACEMENT_NVME, 0);
	const struct answer *answer;

	take_step(&actor, 0);
	take_step(&actor, 1);
	read = read_bytes(job);
	training_begin_step(&actor);
	for (uint32_t unit = UNITS; unit-- > 1;)
		training_push(&actor, unit, 3.0f);
	while (count_early(job) < job->catalog.pack_count - 1)
		scene_wait(&scene);
	training_push(&actor, 0, NAN);
	assert_int_equal(read_bytes(job), read);
	answer = actor_await(&actor, actor_send_step(&actor, 0.1f), 0);
	assert_true(answer->status == 0 && answer->reply->step->is_skipped);
	take_step(&actor, 2);
	assert_true(read_bytes(job) > read);
	assert_true(training_hash(&actor, 4) == expected);
	training_end(&actor, job);
}

/* ---- Between commits ---- */

#define AN_HOUR 3600

static struct job *start_lazy(uint32_t parameters_on, uint64_t host_budget)
{
	struct actor_job options = options_of(parameters_on, host_budget);

	options.durability = AN_HOUR;
	return start_with(&actor, &options);
}

static uint64_t written_bytes(const struct job *job)
{
	return figures_of(job)->bytes[STATISTICS_UPDATE][STATISTICS_WRITTEN];
}

static void commit(struct job *job)
{
	uint64_t step = 0;

	durable_hurry(job);
	while (!durable_has_step(job, &step) || step < job->step)
		scene_wait(&scene);
	scene_settle(&scene);
	assert_false(warm_has_dirty(job));
}

/* It stays in memory, and a commit writes all of it, with the parameters, once. */
static void what_is_warm_is_written_once_for_a_commit(void **state)
{
	struct job *job = start_lazy(PLACEMENT_HOST, 0);
	uint64_t one_step, before;

	take_step(&actor, 0);
	take_step(&actor, 1);
	before = written_bytes(job);
	commit(job);
	one_step = written_bytes(job) - before;
	assert_true(one_step > warm_bytes(job));
	take_step(&actor, 2);
	before += one_step;
	assert_int_equal(written_bytes(job), before);
	take_step(&actor, 3);
	assert_int_equal(written_bytes(job), before);
	assert_true(warm_has_dirty(job));
	commit(job);
	assert_int_equal(written_bytes(job), before + one_step);
	training_end(&actor, job);
}

/* Reads see the last step, and so does whoever opens the job after a crash, if it is committed. */
static void the_bits_are_the_same_between_commits(void **state)
{
	uint64_t expected[] = { hash_after(2), hash_after(4) }, least, half;
	struct job *job = start_lazy(PLACEMENT_HOST, 0);

	take_step(&actor, 0);
	least = promised_bytes(job);
	half = least + warm_bytes_here(job) / 2;
	training_end(&actor, job);
	FOREACH_CASE (i, 6) {
		uint64_t budget = i % 3 == 0 ? least : i % 3 == 1 ? half : 0;

		job = start_lazy(i < 3 ? PLACEMENT_HOST : PLACEMENT_NVME, budget);
		take_step(&actor, 0);
		take_step(&actor, 1);
		assert_true(training_hash(&actor, 2) == expected[0]);
		take_step(&actor, 2);
		take_step(&actor, 3);
		assert_true(training_hash(&actor, 4) == expected[1]);
		training_end(&actor, job);
	}
}

static void restart(uint32_t parameters_on)
{
	struct actor_job options = options_of(parameters_on, 0);

	actor_die(&actor);
	assert_int_equal(
		scene_restart(&(struct scene_options){ .host_budget = NODE_BUDGET, .capacity = GIB }, &scene),
		0);
	options.durability = AN_HOUR;
	options.mode = MODE_RESUME;
	start_with(&actor, &options);
}

/* What the next daemon finds when make_durable has been called. */
static void expect_back(uint32_t parameters_on, void (*make_durable)(struct job *job))
{
	uint64_t expected = hash_after(3);
	struct job *job = start_lazy(parameters_on, 0);

	for (uint64_t step = 0; step < 3; step++)
		take_step(&actor, step);
	assert_true(warm_has_dirty(job));
	make_durable(job);
	restart(parameters_on);
	assert_int_equal(actor.step, 3);
	assert_true(training_hash(&actor, 3) == expected);
	training_end(&actor, scene_job("play"));
}

static void a_commit_has_all_of_one_step(void **state)
{
	expect_back(PLACEMENT_HOST, commit);
	expect_back(PLACEMENT_NVME, commit);
}

static void leave(struct job *job)
{
	actor_die(&actor);
	scene_settle(&scene);
	assert_true(warm_bytes(job) == 0 && !durable_is_behind(job));
}

/* Who leaves leaves all of it durable. */
static void nothing_is_left_when_the_last_rank_has_gone(void **state)
{
	expect_back(PLACEMENT_NVME, leave);
}

static const struct store_task *rolling_back(const struct job *job)
{
	const struct queue *link = job ? queue_first(&job->durability->tasks) : NULL;

	return link ? queue_entry(link, struct store_task, link) : NULL;
}

/* Others want the memory while the store takes nothing: the job is what its snapshot is, and does not break.
 */
static void what_is_given_up_during_a_rollback_is_not_written(void **state)
{
	struct actor_job options = options_of(PLACEMENT_NVME, 0);
	Tierd__Wire__SnapshotTake take = TIERD__WIRE__SNAPSHOT_TAKE__INIT;
	Tierd__Wire__JobRollBack roll_back = TIERD__WIRE__JOB_ROLL_BACK__INIT;
	struct claim claim = { .node = scene.node, .uid = geteuid() };
	const struct answer *answer;
	const Tierd__Wire__Reply *reply;
	struct job *job;
	uint32_t number;

	options.durability = AN_HOUR;
	options.snapshots = 1;
	job = start_with(&actor, &options);
	assert_int_equal(actor_enter(&scene, &watcher), 0);
	take_step(&actor, 0);
	take.name = roll_back.name = (char *)"play";
	take.snapshot = roll_back.snapshot = (char *)"one";
	assert_int_equal(actor_ask(&watcher, WIRE_REQUEST(SNAPSHOT_TAKE, snapshot_take, &take), &reply), 0);
	take_step(&actor, 1);
	assert_true(warm_has_dirty(job));
	roll_back.force = true;
	number = actor_send(&watcher, WIRE_REQUEST(JOB_ROLL_BACK, job_roll_back, &roll_back));
	while (!rolling_back(job)->is_under_way)
		scene_wait(&scene);
	assert_true(warm_has_dirty(job));
	cache_reclaim(&claim, UINT64_MAX);
	while (!(answer = actor_find(&watcher, number, 0))) {
		const struct job *there = scene_job("play");

		assert_false(there && job_is_broken(there));
		scene_wait(&scene);
	}
	assert_int_equal(answer->status, 0);
	assert_int_equal(scene_job("play")->step, 1);
	actor_die(&watcher);
}

/* Others want the memory, between two sweeps and in one. */
static void what_is_given_up_is_written_before(void **state)
{
	uint64_t expected = hash_after(4);
	struct job *job = start_lazy(PLACEMENT_NVME, 0);
	struct claim claim = { .node = scene.node, .uid = geteuid() };
	uint32_t step;

	for (uint64_t i = 0; i < 3; i++)
		take_step(&actor, i);
	assert_true(warm_has_dirty(job));
	cache_reclaim(&claim, warm_bytes_here(job) / 2);
	training_push_all(&actor, 3);
	step = actor_send_step(&actor, 0.1f);
	while (!job->update->sweep || job->update->sweep->running == 0)
		scene_wait(&scene);
	cache_reclaim(&claim, UINT64_MAX);
	assert_int_equal(actor_await(&actor, step, 0)->status, 0);
	assert_true(training_hash(&actor, 4) == expected);
	commit(job);
	restart(PLACEMENT_NVME);
	assert_true(training_hash(&actor, 4) == expected);
	training_end(&actor, scene_job("play"));
}

/* Of a pack that a sweep is at, in a segment that is to go and that no chunk uses. */
static bool has_held_up(const struct job *job)
{
	const struct warm *warm = job->update->warm;

	for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
		for (uint32_t i = warm->first_range[pack]; i < warm->first_range[pack + 1]; i++) {
			const struct warm_segment *segment = &warm->segments[warm->ranges[i].segment];

			if (residency_is_updated(job, pack) && warm->ranges[i].is_dirty &&
			    segment->state == SEGMENT_DRAINING && segment->users == 0)
				return true;
		}
	return false;
}

/* The sweep stands still in the middle of a pack, of which it has not taken all. */
static void what_a_sweep_comes_to_is_written_after_it(void **state)
{
	uint64_t expected = hash_after(3);
	struct job *job = start_lazy(PLACEMENT_NVME, 0);
	struct claim claim = { .node = scene.node, .uid = geteuid() };
	struct blockade blockade;
	uint32_t step;

	take_step(&actor, 0);
	take_step(&actor, 1);
	training_push_all(&actor, 2);
	step = actor_send_step(&actor, 0.1f);
	while (!norm_is_running(job))
		scene_wait(&scene);
	/* What the norm is made of ends, and nobody looks before the workers have nothing but these. */
	blockade_begin(&scene, scene.node->workers, &blockade);
	while (!job->update->sweep || job->update->sweep->running == 0)
		scene_wait(&scene);
	cache_reclaim(&claim, UINT64_MAX);
	while (!has_held_up(job))
		scene_wait(&scene);
	event_base_loop(scene.loop, EVLOOP_NONBLOCK);
	blockade_end(&blockade);
	assert_int_equal(actor_await(&actor, step, 0)->status, 0);
	scene_settle(&scene);
	assert_int_equal(warm_bytes_leaving(job), 0);
	assert_true(training_hash(&actor, 3) == expected);
	training_end(&actor, job);
}

/* ---- Others ---- */

static bool has_all_segments(const struct job *job)
{
	assert_true(residency_slots(job)->cache > 0);
	return segment_bytes(job, SEGMENT_HERE) == residency_slots(job)->cache;
}

static void it_goes_before_any_slot(void **state)
{
	struct job *job = start(PLACEMENT_NVME, 0);
	struct claim claim = { .node = scene.node, .uid = geteuid() };
	uint64_t before;

	take_step(&actor, 0);
	before = warm_bytes_here(job);
	assert_true(has_all_segments(job) && before > 0);
	cache_reclaim(&claim, before);
	assert_true(has_all_segments(job) && warm_bytes_here(job) == 0);
	cache_reclaim(&claim, before + 1);
	assert_false(has_all_segments(job));
	cache_keep_all(scene.node);
	assert_true(has_all_segments(job) && warm_bytes_here(job) == before);
	training_end(&actor, job);
}

/* The other one needs less than what is warm of the first. */
static void it_is_shared_with_others(void **state)
{
	uint64_t expected = hash_after(3), before;
	struct job *job = start(PLACEMENT_NVME, 0), *second;
	struct actor_job options = options_of(PLACEMENT_HOST, 0);

	take_step(&actor, 0);
	take_step(&actor, 1);
	before = warm_bytes_here(job);
	assert_true(has_all_segments(job) && before > 0);
	options.name = "other";
	second = start_with(&other, &options);
	assert_true(warm_bytes_here(job) < before);
	assert_true(has_all_segments(job));
	take_step(&other, 0);
	take_step(&actor, 2);
	assert_true(training_hash(&actor, 3) == expected);
	/* They come to have about as much. */
	assert_true(warm_bytes_here(second) > 0 && warm_bytes_here(job) > 0);
	training_end(&other, second);
	take_step(&actor, 3);
	assert_true(warm_bytes_here(job) == before);
	training_end(&actor, job);
}

/* What a job may have is less than the other one has. */
static void who_may_not_have_more_holds_up_nobody(void **state)
{
	struct job *job = start(PLACEMENT_HOST, 0), *second;
	struct actor_job options = options_of(PLACEMENT_HOST, 0);
	uint64_t before, least = promised_bytes(job);

	take_step(&actor, 0);
	before = warm_bytes(job);
	assert_true(before > 0);
	training_end(&actor, job);
	options.name = "other";
	options.host_budget = least;
	second = start_with(&other, &options);
	take_step(&other, 0);
	assert_int_equal(warm_bytes(second), 0);
	job = start(PLACEMENT_HOST, before / 2 + least);
	take_step(&actor, 0);
	assert_true(warm_bytes(job) > before / 4);
	training_end(&other, second);
	training_end(&actor, job);
}

/* A job of one unit, which ends with all of its state warm. */
static struct job *start_another(void)
{
	struct actor_job options = options_of(PLACEMENT_HOST, 0);
	struct job *job;

	options.name = "other";
	job = training_start(&other, &options, elements, 1);
	training_push(&other, 0, 1.0f);
	training_step(&other);
	scene_settle(&scene);
	assert_true(warm_bytes(job) > 0 && warm_bytes(job) == warm_bytes_most(job));
	return job;
}

static void expect_all_warm(struct job *job, uint64_t step)
{
	take_step(&actor, step);
	assert_int_equal(warm_bytes_here(job), warm_bytes_most(job));
}

/* None of them has a budget of its own. */
static void who_wants_no_more_holds_up_nobody(void **state)
{
	struct job *job, *second;

	scene.node->settings.host_budget = GIB / 2;
	second = start_another();
	job = start(PLACEMENT_HOST, 0);
	expect_all_warm(job, 0);
	assert_true(warm_bytes(second) > 0 && warm_bytes(second) < warm_bytes(job));
	training_end(&actor, job);
	/* Its last rank goes, too. */
	actor_die(&other);
	scene_settle(&scene);
	assert_int_equal(warm_bytes(second), 0);
	job = start(PLACEMENT_HOST, 0);
	expect_all_warm(job, 0);
	job_drop(second);
	training_end(&actor, job);
}

/* Its memory went to another one, or to nobody, and is there again. */
static void who_gave_way_gets_it_back(void **state)
{
	struct claim claim = { .node = scene.node, .uid = geteuid() };
	struct job *job, *second;

	scene.node->settings.host_budget = GIB / 2;
	second = start_another();
	job = start(PLACEMENT_NVME, 0);
	expect_all_warm(job, 0);
	cache_reclaim(&claim, UINT64_MAX);
	scene_settle(&scene);
	expect_all_warm(job, 1);
	actor_die(&actor);
	scene_settle(&scene);
	assert_int_equal(warm_bytes(job), 0);
	come_back(0);
	expect_all_warm(job, 2);
	training_end(&other, second);
	training_end(&actor, job);
}

/* In the middle of a sweep, whose chunks are at it. */
static void it_goes_while_a_sweep_uses_it(void **state)
{
	uint64_t expected = hash_after(3);
	struct job *job = start(PLACEMENT_HOST, 0);
	struct claim claim = { .node = scene.node, .uid = geteuid() };
	uint32_t step;

	take_step(&actor, 0);
	take_step(&actor, 1);
	training_push_all(&actor, 2);
	step = actor_send_step(&actor, 0.1f);
	while (!job->update->sweep || job->update->sweep->running == 0)
		scene_wait(&scene);
	cache_reclaim(&claim, UINT64_MAX);
	assert_int_equal(warm_bytes_here(job), 0);
	assert_int_equal(actor_await(&actor, step, 0)->status, 0);
	assert_true(training_hash(&actor, 3) == expected);
	training_end(&actor, job);
}

/* All of it is read once more when its rank is back; if it was released, too. */
static void a_job_without_ranks_has_none(void **state)
{
	uint64_t expected = hash_after(3), read;
	struct job *job = start(PLACEMENT_NVME, 0);

	take_step(&actor, 0);
	actor_die(&actor);
	scene_settle(&scene);
	assert_int_equal(warm_bytes(job), 0);
	come_back(0);
	take_step(&actor, 1);
	assert_true(warm_bytes(job) > 0);
	actor_die(&actor);
	scene_settle(&scene);
	assert_true(idle_release(job));
	scene_await_disposals(&scene);
	assert_null(job->update->warm);
	assert_int_equal(budget_cache_bytes(job), 0);
	read = read_bytes(job);
	come_back(0);
	take_step(&actor, 2);
	assert_true(read_bytes(job) > read);
	assert_true(training_hash(&actor, 3) == expected);
	training_end(&actor, job);
}

/* Whether there is anything of it at the moment, or there never can be. */
static void what_all_of_it_would_be_stands_in_the_plan(void **state)
{
	struct job *job = start(PLACEMENT_HOST, 0);
	struct actor_job options = options_of(PLACEMENT_HOST, 0);
	uint64_t all;

	take_step(&actor, 0);
	all = warm_bytes_here(job);
	assert_true(all > 0);
	assert_int_equal(job->location.warm_most_bytes, all);
	actor_die(&actor);
	scene_settle(&scene);
	assert_true(idle_release(job));
	assert_null(job->update->warm);
	assert_int_equal(job->location.warm_most_bytes, all);
	assert_int_equal(
		scene_restart(&(struct scene_options){ .host_budget = NODE_BUDGET, .capacity = GIB }, &scene),
		0);
	job = scene_job("play");
	assert_int_equal(job->location.warm_most_bytes, all);
	training_end(&other, job);
	options.optimizer_placement = PLACEMENT_HOST;
	job = start_with(&other, &options);
	assert_int_equal(job->location.warm_most_bytes, 0);
	training_end(&other, job);
}

/* ---- Readers ---- */

/* The sweep saves for it what it finds in memory. */
static void a_reader_sees_the_step_before(void **state)
{
	struct job *job = start(PLACEMENT_HOST, 0);
	uint32_t reader, refresh;
	struct training_ends ends;

	take_step(&actor, 0);
	take_step(&actor, 1);
	training_note_ends(&actor, "master", 2, &ends);
	training_push_all(&actor, 2);
	refresh = training_send_refresh(&watcher, "master", &reader);
	take_step(&actor, 2);
	assert_int_equal(actor_await(&watcher, refresh, 0)->status, 0);
	training_expect_ends(&watcher, reader, 2, &ends);
	actor_die(&watcher);
	training_end(&actor, job);
}

/* What it copies is written first. */
static void a_reader_between_commits_sees_the_last_step(void **state)
{
	struct job *job = start_lazy(PLACEMENT_NVME, 0);
	uint32_t reader, refresh;
	struct training_ends ends;

	take_step(&actor, 0);
	take_step(&actor, 1);
	assert_true(warm_has_dirty(job));
	refresh = training_send_refresh(&watcher, "master", &reader);
	assert_int_equal(actor_await(&watcher, refresh, 0)->status, 0);
	assert_true(durable_is_behind(job));
	training_note_ends(&actor, "master", 2, &ends);
	training_expect_ends(&watcher, reader, 2, &ends);
	actor_die(&watcher);
	training_end(&actor, job);
}

/* ---- Devices that fail ---- */

/* Steps, with a commit after every second one, until the device takes no more writes: the step that is
 * durable then. */
static uint64_t go_on_until_it_breaks(struct job *job)
{
	uint64_t step, durable = 0;

	for (step = 0; !job_is_broken(job); step++) {
		training_push_all(&actor, step);
		(void)actor_await(&actor, actor_send_step(&actor, 0.1f), 0);
		if (step % 2)
			durable_hurry(job);
		scene_settle(&scene);
	}
	assert_true(durable_has_step(job, &durable));
	return durable;
}

/* Those that fail among others are the writes before a commit. */
static void what_cannot_be_written_breaks_the_job(void **state)
{
	unsigned failed_flushes = 0;

	for (unsigned nth = 90; nth <= 165; nth += 15) {
		char fault[64];
		uint64_t step, hash;

		snprintf(fault, sizeof(fault), "complete:write:%u:EIO:lasting", nth);
		scene.node->fault = fault;
		struct job *job = start_lazy(PLACEMENT_NVME, 0);

		scene.node->fault = NULL;
		scene_settle(&scene);
		step = go_on_until_it_breaks(job);
		failed_flushes += job->update->warm->flush.status < 0;
		actor_die(&actor);
		scene_settle(&scene);
		come_back(AN_HOUR);
		assert_int_equal(actor.step, step);
		hash = training_hash(&actor, step);
		training_end(&actor, scene_job("play"));
		assert_true(hash == hash_after((unsigned)step));
	}
	assert_true(failed_flushes > 0);
}

/* It was about to be given up when the sweep came to it, and then nobody wanted its memory. */
static void what_was_updated_in_the_store_alone_is_not_right_any_more(void **state)
{
	struct job *job = start(PLACEMENT_NVME, 0);
	uint32_t pack = job->catalog.units[0].pack;
	enum unit_section section = (enum unit_section)0;
	struct warm_range *range;
	bool is_filled;

	take_step(&actor, 0);
	take_step(&actor, 1);
	while (job->catalog.packs[pack].elements[section] == 0)
		section++;
	range = warm_take(job, pack, section, 0, false, &is_filled);
	assert_non_null(range);
	assert_true(is_filled);
	warm_give(job, range, section, 0, true);
	while (warm_bytes_here(job) > 0)
		warm_close(job);
	assert_null(warm_take(job, pack, section, 0, false, &is_filled));
	warm_keep_all(job);
	range = warm_take(job, pack, section, 0, false, &is_filled);
	assert_non_null(range);
	assert_false(is_filled);
	warm_give(job, range, section, 0, false);
	training_end(&actor, job);
}

#define TEST(name) SCENE_TEST(name, setup)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(what_is_warm_is_not_read_again),
		TEST(it_is_spread_over_the_sweep),
		TEST(the_bits_are_the_same_with_any_part_of_it),
		TEST(what_is_withdrawn_is_read_again),
		TEST(what_was_updated_in_the_store_alone_is_not_right_any_more),
		TEST(what_is_warm_is_written_once_for_a_commit),
		TEST(the_bits_are_the_same_between_commits),
		TEST(a_commit_has_all_of_one_step),
		TEST(nothing_is_left_when_the_last_rank_has_gone),
		TEST(what_is_given_up_during_a_rollback_is_not_written),
		TEST(what_is_given_up_is_written_before),
		TEST(what_a_sweep_comes_to_is_written_after_it),
		TEST(it_goes_before_any_slot),
		TEST(it_is_shared_with_others),
		TEST(who_may_not_have_more_holds_up_nobody),
		TEST(who_wants_no_more_holds_up_nobody),
		TEST(who_gave_way_gets_it_back),
		TEST(it_goes_while_a_sweep_uses_it),
		TEST(a_job_without_ranks_has_none),
		TEST(what_all_of_it_would_be_stands_in_the_plan),
		TEST(a_reader_sees_the_step_before),
		TEST(a_reader_between_commits_sees_the_last_step),
		TEST(what_cannot_be_written_breaks_the_job),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
