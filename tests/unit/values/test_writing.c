/* Values that ranks write between two steps: that the job then has the bits of one that began with them, that
 * nobody sees half of them whoever goes when, and what is refused. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bfloat16.h"
#include "common/log.h"
#include "daemon/durability/durable.h"
#include "daemon/model/job.h"
#include "daemon/values/own.h"
#include "daemon/update/warm.h"
#include "tests/unit/seeds.h"
#include "tests/unit/test.h"
#include "tests/unit/values/values_test.h"

#define LARGE 270001 /* of odd bytes, and more than a window holds of fp32 */
#define SMALL 700
#define UNITS 4
#define UPDATES 5

static const struct actor_tensor tensors[] = {
	{ NULL, FORMAT_BF16, INITIALIZE_NONE, LARGE, false },
	{ NULL, FORMAT_FP32, INITIALIZE_NONE, SMALL, false },
	{ NULL, FORMAT_BF16, INITIALIZE_ONES, 100, true },
};

static struct actor ranks[2];

/* ---- A job of one or two ranks ---- */

static void enter(uint32_t rank, const struct actor_job *job)
{
	struct actor_job of_rank = *job;

	of_rank.rank = rank;
	assert_int_equal(actor_enter(&scene, &ranks[rank]), 0);
	assert_int_equal(actor_open(&ranks[rank], &of_rank), 0);
	for (unsigned unit = 0; unit < UNITS; unit++)
		assert_int_equal(define_unit(&ranks[rank], unit, tensors, 3), 0);
}

static int write_state(struct actor *actor, uint32_t unit, uint32_t tensor, const char *state, uint64_t first,
		       uint64_t count)
{
	put_values(actor, count);
	return actor_await(actor, actor_send_unit_state(actor, unit, tensor, state, UPDATES, first, count), 0)
		->status;
}

/* All of a tensor: of 0, as masters, or as parameters and some of it as masters. */
static void write_tensor(struct actor *actor, uint32_t unit, uint32_t tensor)
{
	uint64_t elements = tensors[tensor].elements;

	for (uint64_t first = 0; first < elements; first += PIECE) {
		uint64_t left = elements - first, count = left < PIECE ? left : PIECE;
		bool is_narrow = tensor == 0 && unit % 2 == 1;

		assert_int_equal(is_narrow ? write_narrow(actor, unit, 0, first, count)
					   : write_masters(actor, unit, tensor, first, count),
				 0);
	}
	if (tensor == 0) {
		assert_int_equal(write_masters(actor, unit, 0, 1000 + unit, 17), 0);
		assert_int_equal(write_narrow(actor, unit, 0, 1010, 3), 0);
	}
}

static void write_slots(struct actor *actor, uint32_t unit, uint32_t tensor)
{
	uint64_t elements = tensors[tensor].elements;

	for (uint64_t first = 0; first < elements; first += PIECE) {
		uint64_t left = elements - first, count = left < PIECE ? left : PIECE;

		assert_int_equal(write_state(actor, unit, tensor, "m", first, count), 0);
		assert_int_equal(write_state(actor, unit, tensor, "exp_avg_sq", first, count), 0);
	}
}

/* By the ranks in turns. */
static void write_all(unsigned world_size, bool with_slots)
{
	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t tensor = 0; tensor < 2; tensor++) {
			write_tensor(&ranks[unit % world_size], unit, tensor);
			if (with_slots)
				write_slots(&ranks[(unit + 1) % world_size], unit, tensor);
		}
}

static unsigned size_of(const struct actor_job *job)
{
	return job->world_size ? job->world_size : 1;
}

/* Of values that follow from the seed. */
static void begin(const struct scene_options *options, const struct actor_job *job, uint64_t values,
		  bool with_slots)
{
	assert_int_equal(scene_open(options, &scene), 0);
	for (uint32_t rank = 0; rank < size_of(job); rank++)
		enter(rank, job);
	value_seed = values;
	write_all(size_of(job), with_slots);
	assert_int_equal(size_of(job) > 1 ? make_two_ready(&ranks[0], &ranks[1]) : actor_ready(&ranks[0]), 0);
}

static void take_step(unsigned world_size)
{
	uint32_t numbers[2];

	for (uint32_t unit = 0; unit < UNITS; unit++) {
		uint32_t pushes[2];

		for (uint32_t rank = 0; rank < world_size; rank++) {
			actor_fill(&ranks[rank], FORMAT_BF16, LARGE, 0.5f + (float)rank);
			pushes[rank] = actor_send_push(&ranks[rank], unit, 0);
		}
		for (uint32_t rank = 0; rank < world_size; rank++)
			assert_int_equal(actor_await(&ranks[rank], pushes[rank], 0)->status, 0);
	}
	for (uint32_t rank = 0; rank < world_size; rank++)
		numbers[rank] = actor_send_step(&ranks[rank], 0.1f);
	for (uint32_t rank = 0; rank < world_size; rank++)
		assert_int_equal(actor_await(&ranks[rank], numbers[rank], 0)->status, 0);
}

/* ---- A writing ---- */

static void open_writing(unsigned world_size, uint32_t numbers[2])
{
	for (uint32_t rank = 0; rank < world_size; rank++)
		numbers[rank] = actor_send_write_begin(&ranks[rank]);
	for (uint32_t rank = 0; rank < world_size; rank++) {
		const struct answer *answer = actor_await(&ranks[rank], numbers[rank], 0);

		assert_int_equal(answer->status, 0);
		assert_int_equal(answer->reply->body_case, TIERD__WIRE__REPLY__BODY_STEP_REDUCED);
	}
}

static void end_writing(unsigned world_size, const uint32_t numbers[2], uint64_t step)
{
	for (uint32_t rank = 0; rank < world_size; rank++)
		assert_int_equal(actor_end_write(&ranks[rank], false), 0);
	for (uint32_t rank = 0; rank < world_size; rank++) {
		const struct answer *answer = actor_await(&ranks[rank], numbers[rank], 1);

		assert_int_equal(answer->status, 0);
		assert_int_equal(answer->reply->body_case, TIERD__WIRE__REPLY__BODY_STEP);
		assert_int_equal(answer->reply->step->step, step);
		assert_false(answer->reply->step->is_skipped);
	}
}

/* ---- Pictures ---- */

#define PICTURE_BYTES (UNITS * (4 * (LARGE + SMALL) + 100) * sizeof(float))

static struct picture take_picture(struct actor *actor)
{
	static const char *const states[] = { "parameter", "master", "m", "v" };
	struct picture picture = picture_new(PICTURE_BYTES);

	for (uint32_t unit = 0; unit < UNITS; unit++)
		for (uint32_t tensor = 0; tensor < 3; tensor++)
			for (unsigned i = 0; i < (tensors[tensor].is_frozen ? 1 : 4); i++)
				picture_add(&picture, actor, unit, tensor, tensors[tensor].elements,
					    states[i]);
	assert_int_equal(picture.size, PICTURE_BYTES);
	return picture;
}

/* ---- The same bits as of a job that begins with these values ---- */

static const struct {
	struct scene_options options;
	struct actor_job job;
} cases[] = {
	{ { 0 }, { .stage = 3 } },
	{ { 0 }, { .stage = 3, .is_pushed_once = true } },
	{ { 0 }, { .stage = 3, .moments = MOMENTS_IN_INT8, .durability = 3600 } },
	{ { 0 }, { .stage = 3, .durability = DURABILITY_NONE, .moments = MOMENTS_IN_BF16 } },
	{ { 0 }, { .stage = 3, .world_size = 2, .gradient_placement = PLACEMENT_NVME } },
	{ { 0 }, { .stage = 3, .gradient_placement = PLACEMENT_NVME, .is_pushed_once = true } },
	{ { 0 }, { .stage = 1, .world_size = 2, .parameter_placement = PLACEMENT_HOST } },
	{ { 0 },
	  { .stage = 3, .parameter_placement = PLACEMENT_HOST, .optimizer_placement = PLACEMENT_HOST } },
	{ { 0 },
	  { .stage = 3,
	    .is_pushed_once = true,
	    .parameter_placement = PLACEMENT_HOST,
	    .optimizer_placement = PLACEMENT_HOST,
	    .durability = DURABILITY_NONE } },
	{ { .is_without_nvme = true }, { .stage = 0, .world_size = 2 } },
	{ { .is_without_nvme = true }, { .stage = 2, .is_pushed_once = true } },
};

static struct picture train_from(unsigned number)
{
	struct picture picture;

	begin(&cases[number].options, &cases[number].job, 77, true);
	assert_int_equal(play()->step, UPDATES);
	take_step(size_of(&cases[number].job));
	picture = take_picture(&ranks[0]);
	scene_close(&scene);
	return picture;
}

static struct picture train_written(unsigned number)
{
	unsigned world_size = size_of(&cases[number].job);
	struct picture picture;
	uint32_t numbers[2];

	begin(&cases[number].options, &cases[number].job, 5, false);
	take_step(world_size);
	take_step(world_size);
	open_writing(world_size, numbers);
	value_seed = 77;
	write_all(world_size, true);
	end_writing(world_size, numbers, 3);
	assert_false(draft_exists(play()));
	take_step(world_size);
	assert_int_equal(play()->step, 4);
	picture = take_picture(&ranks[0]);
	scene_close(&scene);
	return picture;
}

static void a_job_is_as_if_it_had_begun_with_what_is_written(void **state)
{
	FOREACH_CASE (i, ARRAY_LENGTH(cases))
		assert_true(pictures_are_equal(train_from(i), train_written(i)));
}

/* ---- Parts ---- */

static void what_is_not_written_stays_as_it_is(void **state)
{
	FOREACH_CASE (i, ARRAY_LENGTH(cases)) {
		unsigned world_size = size_of(&cases[i].job);
		struct picture before, after;
		uint32_t numbers[2];
		float written[8];
		size_t at;

		begin(&cases[i].options, &cases[i].job, 5, false);
		take_step(world_size);
		before = take_picture(&ranks[0]);
		open_writing(world_size, numbers);
		assert_int_equal(write_masters(&ranks[0], 2, 0, 1001, 8), 0);
		memcpy(written, ranks[0].window.base, sizeof(written));
		end_writing(world_size, numbers, 2);
		/* Master and parameter have it, and nothing else has changed. */
		assert_int_equal(actor_read(&ranks[0], 2, 0, "master", 1001, 8, 2), 0);
		assert_memory_equal(ranks[0].window.base, written, sizeof(written));
		after = take_picture(&ranks[0]);
		assert_int_equal(before.size, after.size);
		at = 2 * (4 * (LARGE + SMALL) + 100) * sizeof(float) + LARGE * sizeof(float) +
		     1001 * sizeof(float);
		assert_memory_equal(after.values + at, written, sizeof(written));
		assert_memory_not_equal(before.values + at, written, sizeof(written));
		memcpy(before.values + at, written, sizeof(written));
		at = 2 * (4 * (LARGE + SMALL) + 100) * sizeof(float) + 1001 * sizeof(uint16_t);
		memcpy(before.values + at, after.values + at, 8 * sizeof(uint16_t));
		assert_true(pictures_are_equal(before, after));
		scene_close(&scene);
	}
}

static void expect_updates(uint32_t unit, uint32_t tensor, uint64_t version, float expected)
{
	const float *window = (const float *)ranks[0].window.base;

	assert_int_equal(actor_read(&ranks[0], unit, tensor, "step", 3, 2, version), 0);
	assert_true(window[0] == expected && window[1] == expected);
}

/* By itself: others of its unit as before. */
static void a_tensor_counts_as_updated_as_often_as_is_said(void **state)
{
	uint32_t numbers[2];

	begin(&(struct scene_options){ 0 }, &(struct actor_job){ .stage = 3 }, 5, false);
	take_step(1);
	open_writing(1, numbers);
	assert_int_equal(write_state(&ranks[0], 3, 0, "m", 5, 100), 0);
	assert_int_equal(write_state(&ranks[0], 2, 1, "v", 5, 100), 0);
	expect_error(&ranks[0],
		     actor_await(&ranks[0], actor_send_unit_state(&ranks[0], 3, 0, "m", UPDATES + 1, 0, 1), 0)
			     ->status,
		     -EINVAL, "was kept after 5 updates, and this after 6");
	expect_error(&ranks[0],
		     actor_await(&ranks[0], actor_send_unit_state(&ranks[0], 3, 0, "m", UINT64_MAX, 0, 1), 0)
			     ->status,
		     -EINVAL, "no tensor is updated");
	assert_int_equal(play()->catalog.units[3].updates, 1);
	expect_updates(3, 0, 1, 1);
	assert_int_equal(actor_end_write(&ranks[0], false), 0);
	/* Who waits for its new values gets its new number, too. */
	expect_updates(3, 0, 2, UPDATES);
	expect_updates(3, 1, 2, 1);
	expect_updates(2, 0, 2, 1);
	expect_updates(2, 1, 2, UPDATES);
	expect_updates(1, 0, 2, 1);
	assert_int_equal(actor_await(&ranks[0], numbers[0], 1)->status, 0);
	assert_int_equal(play()->catalog.units[3].updates, UPDATES);
	assert_int_equal(play()->catalog.units[1].updates, 1);
	take_step(1);
	assert_int_equal(play()->catalog.units[3].updates, UPDATES + 1);
	expect_updates(3, 0, 3, UPDATES + 1);
	expect_updates(3, 1, 3, 2);
	expect_updates(2, 1, 3, UPDATES + 1);
	/* Lower ones, too. */
	open_writing(1, numbers);
	assert_int_equal(
		actor_await(&ranks[0], actor_send_unit_state(&ranks[0], 3, 0, "m", 0, 0, 1), 0)->status, 0);
	assert_int_equal(actor_end_write(&ranks[0], false), 0);
	expect_updates(3, 0, 4, 0);
	expect_updates(3, 1, 4, 2);
	assert_int_equal(play()->catalog.units[3].updates, 2);
	scene_close(&scene);
}

/* ---- Whoever goes ---- */

static void begin_two(const struct actor_job *given, uint32_t numbers[2])
{
	struct actor_job job = *given;

	job.world_size = 2;
	begin(&(struct scene_options){ 0 }, &job, 5, false);
	take_step(2);
	open_writing(2, numbers);
}

static const struct actor_job placements[] = {
	{ .stage = 3 },
	{ .stage = 3, .is_pushed_once = true, .durability = DURABILITY_NONE },
	{ .stage = 3, .parameter_placement = PLACEMENT_HOST, .optimizer_placement = PLACEMENT_HOST },
	{ .stage = 0,
	  .parameter_placement = PLACEMENT_HOST,
	  .optimizer_placement = PLACEMENT_HOST,
	  .durability = DURABILITY_NONE },
};

/* Both are there again, and nothing has changed. */
static void expect_as_before(struct picture before, const struct actor_job *job)
{
	struct actor_job again = *job;

	again.world_size = 2;
	enter(1, &again);
	assert_int_equal(make_two_ready(&ranks[0], &ranks[1]), 0);
	assert_int_equal(play()->step, 1);
	assert_false(draft_exists(play()));
	assert_true(pictures_are_equal(before, take_picture(&ranks[0])));
	take_step(2);
}

static void a_rank_that_dies_before_all_have_ended_costs_what_was_written(void **state)
{
	for (unsigned i = 0; i < ARRAY_LENGTH(placements); i++) {
		struct picture before;
		uint32_t numbers[2];

		begin_two(&placements[i], numbers);
		before = take_picture(&ranks[0]);
		write_all(2, true);
		assert_int_equal(actor_end_write(&ranks[0], false), 0);
		actor_die(&ranks[1]);
		assert_int_equal(actor_await(&ranks[0], numbers[0], 1)->status, -ESTALE);
		expect_as_before(before, &placements[i]);
		scene_close(&scene);
	}
}

/* In the middle of a write, too, and before the next one. */
static void a_write_that_is_under_way_when_a_rank_dies_is_told_so(void **state)
{
	uint32_t numbers[2], write;
	struct picture before;

	begin_two(&placements[0], numbers);
	before = take_picture(&ranks[0]);
	put_values(&ranks[0], 1000);
	write = actor_send_masters(&ranks[0], 0, 0, 0, 1000);
	actor_die(&ranks[1]);
	assert_int_equal(actor_await(&ranks[0], write, 0)->status, -ESTALE);
	write = actor_send_masters(&ranks[0], 0, 0, 0, 1000);
	assert_int_equal(actor_await(&ranks[0], write, 0)->status, -ESTALE);
	expect_as_before(before, &placements[0]);
	scene_close(&scene);
}

static void what_all_have_ended_is_applied_whoever_dies(void **state)
{
	FOREACH_CASE (i, ARRAY_LENGTH(placements)) {
		struct actor_job job = placements[i];
		struct picture all, survived;
		uint32_t numbers[2];

		job.world_size = 2;
		begin_two(&placements[i], numbers);
		value_seed = 99;
		write_all(2, true);
		end_writing(2, numbers, 2);
		all = take_picture(&ranks[0]);
		scene_close(&scene);

		begin_two(&placements[i], numbers);
		value_seed = 99;
		write_all(2, true);
		assert_int_equal(actor_end_write(&ranks[0], false), 0);
		assert_int_equal(actor_end_write(&ranks[1], false), 0);
		assert_int_equal(play()->decided, 2);
		actor_die(&ranks[0]);
		actor_die(&ranks[1]);
		enter(0, &job);
		enter(1, &job);
		assert_int_equal(make_two_ready(&ranks[0], &ranks[1]), 0);
		assert_int_equal(play()->step, 2);
		survived = take_picture(&ranks[1]);
		assert_true(pictures_are_equal(all, survived));
		scene_close(&scene);
	}
}

static void one_rank_can_cancel_it_for_all(void **state)
{
	for (unsigned i = 0; i < ARRAY_LENGTH(placements); i++) {
		struct picture before;
		uint32_t numbers[2];

		begin_two(&placements[i], numbers);
		before = take_picture(&ranks[0]);
		write_all(2, true);
		assert_int_equal(actor_end_write(&ranks[1], true), 0);
		assert_int_equal(actor_end_write(&ranks[0], false), 0);
		for (unsigned rank = 0; rank < 2; rank++)
			expect_error(&ranks[rank], actor_await(&ranks[rank], numbers[rank], 1)->status,
				     -ECANCELED, "rank 1 has cancelled");
		assert_true(pictures_are_equal(before, take_picture(&ranks[0])));
		/* The number is free again. */
		open_writing(2, numbers);
		end_writing(2, numbers, 2);
		take_step(2);
		scene_close(&scene);
	}
}

/* ---- The daemon ends ---- */

static void restart(const struct actor_job *job)
{
	actor_die(&ranks[0]);
	assert_int_equal(scene_restart(&(struct scene_options){ 0 }, &scene), 0);
	enter(0, job);
	assert_int_equal(actor_ready(&ranks[0]), 0);
}

static const struct actor_job durable_jobs[] = {
	{ .stage = 3 },
	{ .stage = 3, .is_pushed_once = true },
	{ .stage = 1, .parameter_placement = PLACEMENT_HOST },
	{ .stage = 3,
	  .parameter_placement = PLACEMENT_HOST,
	  .optimizer_placement = PLACEMENT_HOST,
	  .durability = DURABILITY_STEP },
};

static void await_durable(uint64_t expected)
{
	uint64_t step;

	while (!durable_has_step(play(), &step) || step < expected)
		scene_wait(&scene);
}

static void what_is_written_is_durable_as_a_step_is(void **state)
{
	for (unsigned i = 0; i < ARRAY_LENGTH(durable_jobs); i++) {
		struct picture before;
		uint32_t numbers[2];

		begin(&(struct scene_options){ 0 }, &durable_jobs[i], 5, false);
		open_writing(1, numbers);
		write_all(1, true);
		end_writing(1, numbers, 1);
		before = take_picture(&ranks[0]);
		await_durable(1);
		restart(&durable_jobs[i]);
		assert_int_equal(play()->step, 1);
		assert_int_equal(play()->catalog.units[0].updates, UPDATES);
		assert_true(pictures_are_equal(before, take_picture(&ranks[0])));
		take_step(1);
		scene_close(&scene);
	}
}

/* Slots alone, of units that were never updated. */
static void slots_that_are_written_are_durable(void **state)
{
	struct picture before;
	uint32_t numbers[2];

	begin(&(struct scene_options){ 0 }, &durable_jobs[3], 5, false);
	open_writing(1, numbers);
	put_values(&ranks[0], 50);
	assert_int_equal(
		actor_await(&ranks[0], actor_send_unit_state(&ranks[0], 1, 0, "m", 0, 7, 50), 0)->status, 0);
	end_writing(1, numbers, 1);
	before = take_picture(&ranks[0]);
	await_durable(1);
	restart(&durable_jobs[3]);
	assert_true(pictures_are_equal(before, take_picture(&ranks[0])));
	scene_close(&scene);
}

static void a_daemon_that_ends_before_all_have_ended_leaves_what_was(void **state)
{
	for (unsigned i = 0; i < ARRAY_LENGTH(durable_jobs); i++) {
		struct picture before;
		uint32_t numbers[2];

		begin(&(struct scene_options){ 0 }, &durable_jobs[i], 5, false);
		take_step(1);
		before = take_picture(&ranks[0]);
		open_writing(1, numbers);
		write_all(1, true);
		await_durable(1);
		restart(&durable_jobs[i]);
		assert_int_equal(play()->step, 1);
		assert_true(pictures_are_equal(before, take_picture(&ranks[0])));
		scene_close(&scene);
	}
}

/* Whatever of it is under way. */
static void a_daemon_that_ends_while_it_applies_them_leaves_all_or_nothing(void **state)
{
	static const unsigned turns[] = { 1, 20, 200 };
	unsigned applied = 0;

	FOREACH_CASE (i, ARRAY_LENGTH(durable_jobs) * ARRAY_LENGTH(turns)) {
		const struct actor_job *job = &durable_jobs[i / ARRAY_LENGTH(turns)];
		struct picture before, after;
		uint32_t numbers[2];

		begin(&(struct scene_options){ 0 }, job, 5, false);
		take_step(1);
		before = take_picture(&ranks[0]);
		await_durable(1);
		open_writing(1, numbers);
		value_seed = 99;
		write_tensor(&ranks[0], 1, 0);
		write_tensor(&ranks[0], 2, 0);
		write_slots(&ranks[0], 2, 0);
		assert_int_equal(actor_end_write(&ranks[0], false), 0);
		for (unsigned turn = 0; turn < turns[i % ARRAY_LENGTH(turns)] && play()->step < 2; turn++)
			scene_wait(&scene);
		restart(job);
		after = take_picture(&ranks[0]);
		assert_int_equal(before.size, after.size);
		assert_int_equal(memcmp(before.values, after.values, before.size) != 0, play()->step == 2);
		applied += play()->step == 2;
		free(before.values);
		free(after.values);
		scene_close(&scene);
	}
	print_message("%u of them were applied\n", applied);
}

/* ---- Others ---- */

/* Not before it can be shown whole. */
static void readers_see_all_or_nothing(void **state)
{
	Tierd__Wire__ReaderPiece piece = TIERD__WIRE__READER_PIECE__INIT;
	Tierd__Wire__ReaderRead read = TIERD__WIRE__READER_READ__INIT;
	static struct blockade blockade;
	static struct actor watcher;
	uint32_t numbers[2], reader, refresh;
	const struct answer *answer;

	begin(&(struct scene_options){ 0 }, &placements[0], 5, false);
	assert_int_equal(actor_enter(&scene, &watcher), 0);
	assert_int_equal(actor_open_reader(&watcher, "play", &reader), 0);
	piece.state = (char *)"m";
	piece.all_units = true;
	read.reader = reader;
	read.state = (char *)"v";
	read.count = 10;

	open_writing(1, numbers);
	write_all(1, true);
	/* It has begun before, and is copied first. */
	blockade_begin(&scene, scene.node->workers, &blockade);
	refresh = actor_send_refresh(&watcher, reader, &piece, 1);
	while (!readers_are_copying(play()))
		scene_wait(&scene);
	assert_int_equal(actor_end_write(&ranks[0], false), 0);
	assert_int_equal(play()->decided, 1);
	blockade_end(&blockade);
	answer = actor_await(&watcher, refresh, 0);
	assert_int_equal(answer->status, 0);
	assert_int_equal(answer->reply->reader_refresh->step, 0);
	while (play()->step == 0)
		scene_wait(&scene);
	expect_error(&watcher,
		     actor_await(&watcher, actor_send_reader_read(&watcher, reader, &read), 0)->status,
		     -ESTALE, "it has moved on to step 1");
	read.state = (char *)"m";
	assert_int_equal(actor_await(&watcher, actor_send_reader_read(&watcher, reader, &read), 0)->status,
			 0);
	for (unsigned i = 0; i < read.count; i++)
		assert_true(((float *)watcher.reader_window.base)[i] == 0);
	/* One that comes later waits for the end. */
	answer = actor_await(&watcher, actor_send_refresh(&watcher, reader, NULL, 0), 0);
	assert_int_equal(answer->reply->reader_refresh->step, 1);
	read.step = 1;
	assert_int_equal(actor_await(&watcher, actor_send_reader_read(&watcher, reader, &read), 0)->status,
			 0);
	assert_true(((float *)watcher.reader_window.base)[0] != 0);
	actor_die(&watcher);
	scene_close(&scene);
}

/* A rank reads what the optimizer keeps, on its way to a worker, when all have ended. */
static void who_reads_when_it_is_decided_reads_what_was(void **state)
{
	static struct blockade blockade;
	uint32_t numbers[2], read;

	begin_two(&placements[3], numbers);
	write_slots(&ranks[1], 0, 0);
	blockade_begin(&scene, scene.node->workers, &blockade);
	read = actor_send_read(&ranks[0], 0, 0, "m", 0, PIECE, 1);
	assert_int_equal(actor_end_write(&ranks[0], false), 0);
	assert_int_equal(actor_end_write(&ranks[1], false), 0);
	for (unsigned i = 0; i < 10; i++)
		event_base_loop(scene.loop, EVLOOP_NONBLOCK);
	assert_int_equal(play()->current.state, WRITING_DECIDED);
	blockade_end(&blockade);
	assert_int_equal(actor_await(&ranks[0], read, 0)->status, 0);
	for (uint64_t i = 1; i < PIECE; i++)
		assert_true(((float *)ranks[0].window.base)[i] == ((float *)ranks[0].window.base)[0]);
	assert_int_equal(actor_await(&ranks[1], numbers[1], 1)->status, 0);
	assert_int_equal(actor_read(&ranks[0], 0, 0, "m", 0, 2, 2), 0);
	assert_true(((float *)ranks[0].window.base)[1] != ((float *)ranks[0].window.base)[0]);
	scene_close(&scene);
}

/* What sweeps have left in memory is written before anything is changed in the store. */
static void what_is_warm_is_not_lost(void **state)
{
	struct actor_job job = { .stage = 3, .durability = 3600 };
	struct picture before, after;
	uint32_t numbers[2];

	begin(&(struct scene_options){ 0 }, &job, 5, false);
	for (unsigned i = 0; i < 4; i++)
		take_step(1);
	open_writing(1, numbers);
	assert_int_equal(write_state(&ranks[0], 0, 1, "m", 0, 1), 0);
	assert_true(warm_has_dirty(play()));
	end_writing(1, numbers, 5);
	after = take_picture(&ranks[0]);
	scene_close(&scene);

	/* The same without a writing, but for that element. */
	begin(&(struct scene_options){ 0 }, &job, 5, false);
	for (unsigned i = 0; i < 4; i++)
		take_step(1);
	before = take_picture(&ranks[0]);
	size_t at = 4 * LARGE * sizeof(float) + 2 * SMALL * sizeof(float);

	assert_memory_not_equal(before.values + at, after.values + at, sizeof(float));
	memcpy(before.values + at, after.values + at, sizeof(float));
	assert_true(pictures_are_equal(before, after));
	scene_close(&scene);
}

static void ranks_that_push_after_it_wait_for_its_end(void **state)
{
	uint32_t numbers[2], pushes[2];

	for (unsigned i = 0; i < ARRAY_LENGTH(placements); i++) {
		begin_two(&placements[i], numbers);
		value_seed = 99;
		write_all(2, true);
		for (uint32_t rank = 0; rank < 2; rank++) {
			assert_int_equal(actor_end_write(&ranks[rank], false), 0);
			actor_fill(&ranks[rank], FORMAT_BF16, LARGE, 9.0f);
		}
		for (uint32_t rank = 0; rank < 2; rank++)
			pushes[rank] = actor_send_push(&ranks[rank], 0, 0);
		for (uint32_t rank = 0; rank < 2; rank++)
			assert_int_equal(actor_await(&ranks[rank], pushes[rank], 0)->status, 0);
		assert_int_equal(play()->step, 2);
		value_seed = 99;
		for (uint64_t j = 0; j < 10; j++) {
			assert_int_equal(actor_read(&ranks[0], 0, 0, "master", j, 1, 2), 0);
			assert_true(*(float *)ranks[0].window.base == next_value());
		}
		scene_close(&scene);
	}
}

/* A checkpoint has them, too; a store has one place for them. */
static void what_is_frozen_is_written_with_what_it_has(void **state)
{
	for (unsigned i = 0; i < ARRAY_LENGTH(placements); i++) {
		uint16_t *values;
		uint32_t numbers[2];

		begin_two(&placements[i], numbers);
		values = (uint16_t *)ranks[0].window.base;
		for (unsigned j = 0; j < 100; j++)
			values[j] = bfloat16_from_float(1.0f);
		assert_int_equal(actor_write(&ranks[0], 1, 2, 10, 90), 0);
		values[37] = bfloat16_from_float(1.5f);
		assert_int_equal(actor_write(&ranks[0], 1, 2, 0, 37), 0);
		expect_error(&ranks[0], actor_write(&ranks[0], 1, 2, 0, 100), -EOPNOTSUPP,
			     "\"u1.2\" is frozen, and keeps its first values");
		/* Which is in the way of nothing else. */
		assert_int_equal(write_masters(&ranks[1], 1, 0, 0, 10), 0);
		end_writing(2, numbers, 2);
		assert_int_equal(actor_read(&ranks[0], 1, 2, "parameter", 0, 100, 0), 0);
		for (unsigned j = 0; j < 100; j++)
			assert_int_equal(values[j], bfloat16_from_float(1.0f));
		take_step(2);
		scene_close(&scene);
	}
}

/* ---- What is refused ---- */

static void what_is_in_the_way_is_named(void **state)
{
	uint32_t step;

	begin(&(struct scene_options){ 0 }, &(struct actor_job){ .stage = 3, .world_size = 2 }, 5, false);
	assert_int_equal(actor_gather(&ranks[1], 2, 0, NULL), 0);
	actor_send_write_begin(&ranks[0]);
	expect_error(&ranks[1], actor_await(&ranks[1], actor_send_write_begin(&ranks[1]), 0)->status, -EBUSY,
		     "unit \"u2\" is still leased by rank 1");
	actor_release(&ranks[1], 2);
	actor_fill(&ranks[1], FORMAT_BF16, LARGE, 1.0f);
	assert_int_equal(actor_send_silent_push(&ranks[1], 0, 0) > 0, 1);
	expect_error(&ranks[1], actor_await(&ranks[1], actor_send_write_begin(&ranks[1]), 0)->status, -EBUSY,
		     "rank 1 has pushed gradients");
	step = actor_send_step(&ranks[1], 0.1f);
	expect_error(&ranks[1], actor_await(&ranks[1], step, 0)->status, -EINVAL,
		     "it calls tierd_step, and the ranks that wait for it have called tierd_write_begin");
	scene_close(&scene);
}

static void what_comes_at_the_wrong_time_is_told_so(void **state)
{
	struct actor *actor = &ranks[0];
	uint32_t numbers[2];

	begin(&(struct scene_options){ 0 }, &placements[0], 5, false);
	expect_error(actor, write_masters(actor, 0, 0, 0, 1), -EBUSY, "between tierd_write_begin and");
	expect_error(actor, actor_end_write(actor, false), -EBUSY, "rank 0 writes no values");
	assert_int_equal(actor_begin_step(actor, 0.1f, 1), 0);
	expect_error(actor, actor_await(actor, actor_send_write_begin(actor), 0)->status, -EBUSY,
		     "rank 0 has announced a step");
	take_step(1);
	open_writing(1, numbers);
	expect_error(actor, actor_gather(actor, 0, 2, NULL), -EBUSY, "call tierd_write_end first");
	expect_error(actor, actor_take_step(actor), -EBUSY, "call tierd_write_end first");
	expect_error(actor, actor_await(actor, actor_send_write_begin(actor), 0)->status, -EBUSY,
		     "call tierd_write_end first");
	expect_error(actor, actor_await(actor, actor_send_push(actor, 0, 0), 0)->status, -EBUSY,
		     "call tierd_write_end first");
	expect_error(actor, actor_finish(actor), -EBUSY, "it has closed none");
	expect_error(actor, write_masters(actor, 0, 2, 0, 1), -EINVAL, "\"u0.2\" is frozen");
	expect_error(actor, write_state(actor, 0, 2, "m", 0, 1), -ENODATA, "\"u0.2\" is frozen");
	expect_error(actor, write_state(actor, 0, 0, "momentum", 0, 1), -ENODATA, "there is no state");
	expect_error(actor, write_masters(actor, 0, 0, LARGE, 1), -ERANGE, "are beyond");
	/* None of that is in the way of the rest. */
	assert_int_equal(write_masters(actor, 0, 0, 0, 1), 0);
	end_writing(1, numbers, 2);
	expect_error(actor, write_masters(actor, 0, 0, 0, 1), -EBUSY, "between tierd_write_begin and");
	scene_close(&scene);
}

/* With hardly more memory than the job has. */
static void what_finds_no_room_leaves_all_as_it_was(void **state)
{
	struct scene_options options = { .is_without_nvme = true };
	struct actor *actor = &ranks[0];
	struct picture before;
	uint32_t numbers[2];
	uint64_t used;
	int r = 0;

	begin(&options, &placements[2], 5, false);
	before = take_picture(actor);
	used = budget_host_used(scene.node);
	scene.node->settings.host_budget = used + 7 * MIB;
	open_writing(1, numbers);
	for (unsigned i = 0; i < 20 && r == 0; i++)
		r = write_masters(actor, 0, 0, 0, PIECE);
	expect_error(actor, r, -ENOMEM, "host memory");
	assert_int_equal(actor_end_write(actor, false), 0);
	expect_error(actor, actor_await(actor, numbers[0], 1)->status, -ENOMEM, "none is written");
	assert_true(pictures_are_equal(before, take_picture(actor)));
	scene_settle(&scene);
	assert_false(draft_exists(play()));
	assert_int_equal(budget_host_used(scene.node), used);
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_job_is_as_if_it_had_begun_with_what_is_written),
		cmocka_unit_test(what_is_not_written_stays_as_it_is),
		cmocka_unit_test(a_tensor_counts_as_updated_as_often_as_is_said),
		cmocka_unit_test(a_rank_that_dies_before_all_have_ended_costs_what_was_written),
		cmocka_unit_test(a_write_that_is_under_way_when_a_rank_dies_is_told_so),
		cmocka_unit_test(what_all_have_ended_is_applied_whoever_dies),
		cmocka_unit_test(one_rank_can_cancel_it_for_all),
		cmocka_unit_test(what_is_written_is_durable_as_a_step_is),
		cmocka_unit_test(slots_that_are_written_are_durable),
		cmocka_unit_test(a_daemon_that_ends_before_all_have_ended_leaves_what_was),
		cmocka_unit_test(a_daemon_that_ends_while_it_applies_them_leaves_all_or_nothing),
		cmocka_unit_test(readers_see_all_or_nothing),
		cmocka_unit_test(who_reads_when_it_is_decided_reads_what_was),
		cmocka_unit_test(what_is_warm_is_not_lost),
		cmocka_unit_test(ranks_that_push_after_it_wait_for_its_end),
		cmocka_unit_test(what_is_frozen_is_written_with_what_it_has),
		cmocka_unit_test(what_is_in_the_way_is_named),
		cmocka_unit_test(what_comes_at_the_wrong_time_is_told_so),
		cmocka_unit_test(what_finds_no_room_leaves_all_as_it_was),
	};

	log_open(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
