/* Reads of many pieces with one request, of a rank and of a reader: they bring what reads one by one do, are
 * answered once, and leave nothing behind whoever goes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "daemon/model/job.h"
#include "daemon/residency/residency.h"
#include "tests/unit/test.h"
#include "tests/unit/values/values_test.h"

#define UNITS 5
#define LARGE 100001
#define SMALL 37

static struct actor actor, other;

/* ---- A job ---- */

static void enter(struct actor *rank, const struct actor_job *job)
{
	static const struct actor_tensor tensors[] = {
		{ NULL, FORMAT_BF16, INITIALIZE_NORMAL, LARGE, false },
		{ NULL, FORMAT_FP32, INITIALIZE_NORMAL, SMALL, false },
		{ NULL, FORMAT_BF16, INITIALIZE_NORMAL, SMALL, true },
	};

	assert_int_equal(actor_enter(&scene, rank), 0);
	assert_int_equal(actor_open(rank, job), 0);
	for (unsigned unit = 0; unit < UNITS; unit++)
		assert_int_equal(define_unit(rank, unit, tensors, 3), 0);
}

static uint32_t send_step(struct actor *rank)
{
	for (uint32_t unit = 0; unit < UNITS; unit++) {
		actor_fill(rank, FORMAT_BF16, LARGE, 0.5f);
		assert_int_equal(actor_await(rank, actor_send_push(rank, unit, 0), 0)->status, 0);
	}
	return actor_send_step(rank, 0.1f);
}

static void begin(struct actor_job job)
{
	assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
	enter(&actor, &job);
	assert_int_equal(actor_ready(&actor), 0);
	assert_int_equal(actor_await(&actor, send_step(&actor), 0)->status, 0);
}

/* ---- Pieces ---- */

static const char *const states[] = { "parameter", "master", "m", "v" };

static Tierd__Wire__TensorPiece piece_of(uint32_t unit, uint32_t tensor, const char *state, uint64_t first,
					 uint64_t count, uint64_t at)
{
	Tierd__Wire__TensorPiece piece = TIERD__WIRE__TENSOR_PIECE__INIT;

	piece.unit = unit;
	piece.tensor = tensor;
	piece.state = (char *)state;
	piece.first = first;
	piece.count = count;
	piece.at = at;
	return piece;
}

/* Of all kinds, small and larger ones, in an order of their own; as many as fit. */
static size_t make_pieces(Tierd__Wire__TensorPiece *pieces)
{
	size_t count = 0;
	uint64_t at = 0;

	for (unsigned i = 0; i < UNITS; i++)
		for (unsigned state = 0; state < 4; state++)
			for (unsigned tensor = 0; tensor < 3; tensor++) {
				uint32_t unit = (i * 3 + state) % UNITS;
				uint64_t first = tensor == 0 ? 777 * (i + 1) : i;
				uint64_t most = tensor == 0 ? (i == 2 ? 9000 : 50) : SMALL - i;

				if (tensor == 2 && state > 0)
					continue;
				pieces[count++] = piece_of(unit, tensor, states[state], first, most, at);
				at += (most * sizeof(float) + 63) / 64 * 64;
			}
	assert_true(at <= PLAY_ELEMENTS);
	return count;
}

static uint64_t bytes_of(const Tierd__Wire__TensorPiece *piece)
{
	return piece->count * (piece->tensor != 1 && strcmp(piece->state, "parameter") == 0 ? 2 : 4);
}

/* What is in the window is what reads one by one bring. */
static void expect_same(const Tierd__Wire__TensorPiece *pieces, size_t count, const char *window,
			uint64_t version)
{
	char *values = malloc(PLAY_ELEMENTS);

	memcpy(values, window, PLAY_ELEMENTS);
	for (size_t i = 0; i < count; i++) {
		const Tierd__Wire__TensorPiece *piece = &pieces[i];

		assert_int_equal(actor_read(&actor, piece->unit, piece->tensor, piece->state, piece->first,
					    piece->count, version),
				 0);
		assert_memory_equal(values + piece->at, actor.window.base, bytes_of(piece));
	}
	free(values);
}

static void pieces_are_as_if_they_were_read_one_by_one(void **state)
{
	static const struct actor_job jobs[] = {
		{ .stage = 3 },
		{ .stage = 3, .moments = MOMENTS_IN_INT8, .durability = 3600 },
		{ .stage = 1, .parameter_placement = PLACEMENT_HOST, .optimizer_placement = PLACEMENT_HOST },
	};
	Tierd__Wire__TensorPiece pieces[100];
	size_t count = make_pieces(pieces);

	for (unsigned i = 0; i < ARRAY_LENGTH(jobs); i++) {
		begin(jobs[i]);
		memset(actor.window.base, 0xAB, actor.window.bytes);
		assert_int_equal(
			actor_await(&actor, actor_send_read_many(&actor, pieces, count, 1), 0)->status, 0);
		expect_same(pieces, count, actor.window.base, 1);
		assert_int_equal(actor_await(&actor, actor_send_read_many(&actor, pieces, 0, 1), 0)->status,
				 0);
		scene_close(&scene);
	}
}

static void a_reader_reads_many_pieces_kept_or_not(void **state)
{
	Tierd__Wire__ReaderPiece kept = TIERD__WIRE__READER_PIECE__INIT;
	Tierd__Wire__TensorPiece pieces[100];
	size_t count = make_pieces(pieces);
	uint32_t reader, number;

	begin((struct actor_job){ .stage = 3 });
	assert_int_equal(actor_enter(&scene, &other), 0);
	assert_int_equal(actor_open_reader(&other, "play", &reader), 0);
	kept.state = (char *)"m";
	kept.all_units = true;
	assert_int_equal(actor_await(&other, actor_send_refresh(&other, reader, &kept, 1), 0)->status, 0);
	memset(other.reader_window.base, 0xAB, other.reader_window.bytes);
	number = actor_send_reader_read_many(&other, reader, pieces, count, 1);
	assert_int_equal(actor_await(&other, number, 0)->status, 0);
	expect_same(pieces, count, other.reader_window.base, 1);
	number = actor_send_reader_read_many(&other, reader, pieces, 0, 1);
	assert_int_equal(actor_await(&other, number, 0)->status, 0);

	number = actor_send_reader_read_many(&other, reader, pieces, count, 0);
	expect_error(&other, actor_await(&other, number, 0)->status, -ESTALE, "its reader is at step 1");
	pieces[7] = piece_of(9, 0, "m", 0, 1, 0);
	number = actor_send_reader_read_many(&other, reader, pieces, count, 1);
	expect_error(&other, actor_await(&other, number, 0)->status, -EINVAL, "no unit 9");
	pieces[7] = piece_of(0, 0, "m", 0, 2, PLAY_ELEMENTS - 4);
	number = actor_send_reader_read_many(&other, reader, pieces, count, 1);
	expect_error(&other, actor_await(&other, number, 0)->status, -E2BIG, "the window has room");
	pieces[7].at = 2;
	number = actor_send_reader_read_many(&other, reader, pieces, count, 1);
	expect_error(&other, actor_await(&other, number, 0)->status, -EINVAL, "multiples of 4");
	/* What is kept of the step before is there still; the first piece that is not is told. */
	assert_int_equal(actor_await(&actor, send_step(&actor), 0)->status, 0);
	pieces[0] = piece_of(1, 0, "m", 0, 10, 0);
	pieces[1] = piece_of(2, 1, "m", 0, 10, 64);
	number = actor_send_reader_read_many(&other, reader, pieces, 2, 1);
	assert_int_equal(actor_await(&other, number, 0)->status, 0);
	pieces[2] = piece_of(2, 1, "v", 0, 10, 64);
	number = actor_send_reader_read_many(&other, reader, pieces, 3, 1);
	expect_error(&other, actor_await(&other, number, 0)->status, -ESTALE, "it has moved on to step 2");
	scene_close(&scene);
}

/* ---- What is refused ---- */

static int read_with(Tierd__Wire__TensorPiece piece)
{
	Tierd__Wire__TensorPiece pieces[] = { piece_of(0, 0, "m", 0, 10, 0), piece };

	return actor_await(&actor, actor_send_read_many(&actor, pieces, 2, 1), 0)->status;
}

static void one_piece_that_cannot_be_read_refuses_all(void **state)
{
	static Tierd__Wire__TensorPiece many[WIRE_MAX_PIECES + 1];
	uint32_t number;

	begin((struct actor_job){ .stage = 3 });
	memset(actor.window.base, 0xAB, actor.window.bytes);
	expect_error(&actor, read_with(piece_of(UNITS, 0, "m", 0, 1, 64)), -EINVAL, "has no unit 5");
	expect_error(&actor, read_with(piece_of(0, 3, "m", 0, 1, 64)), -EINVAL, "has no tensor 3");
	expect_error(&actor, read_with(piece_of(0, 0, "x", 0, 1, 64)), -ENODATA, "there is no state \"x\"");
	expect_error(&actor, read_with(piece_of(0, 2, "m", 0, 1, 64)), -ENODATA, "\"u0.2\" is frozen");
	expect_error(&actor, read_with(piece_of(0, 0, "m", LARGE, 1, 64)), -ERANGE, "are beyond");
	expect_error(&actor, read_with(piece_of(0, 0, "m", 0, 2, PLAY_ELEMENTS - 4)), -E2BIG,
		     "beyond the window");
	expect_error(&actor, read_with(piece_of(0, 0, "m", 0, 2, UINT64_MAX - 3)), -E2BIG,
		     "beyond the window");
	expect_error(&actor, read_with(piece_of(0, 0, "m", 0, 2, 65)), -EINVAL, "multiples of 4");
	for (unsigned i = 0; i < ARRAY_LENGTH(many); i++)
		many[i] = piece_of(0, 0, "m", 0, 1, 4 * i);
	number = actor_send_read_many(&actor, many, ARRAY_LENGTH(many), 1);
	expect_error(&actor, actor_await(&actor, number, 0)->status, -E2BIG, "more than 1024");
	assert_int_equal((unsigned char)actor.window.base[0], 0xAB);
	number = actor_send_read_many(&actor, many, ARRAY_LENGTH(many) - 1, 1);
	assert_int_equal(actor_await(&actor, number, 0)->status, 0);
	scene_close(&scene);
}

static void gradients_are_read_alone(void **state)
{
	Tierd__Wire__TensorPiece piece = piece_of(0, 0, "gradient", 0, 10, 0);
	uint32_t step;

	assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
	enter(&actor, &(struct actor_job){ .stage = 3, .optimizer = OPTIMIZER_NONE });
	assert_int_equal(actor_ready(&actor), 0);
	step = send_step(&actor);
	assert_int_equal(actor_await(&actor, step, 0)->status, 0);
	expect_error(&actor, actor_await(&actor, actor_send_read_many(&actor, &piece, 1, 0), 0)->status,
		     -EINVAL, "gradients are not read together");
	assert_int_equal(actor_finish(&actor), 0);
	scene_close(&scene);
}

/* ---- Whoever goes, or waits ---- */

/* Large enough for a worker. */
static uint32_t send_large(uint64_t version)
{
	Tierd__Wire__TensorPiece pieces[UNITS];

	for (unsigned i = 0; i < UNITS; i++)
		pieces[i] = piece_of(i, 0, "m", 0, 20000, i * 80000);
	return actor_send_read_many(&actor, pieces, UNITS, version);
}

static void the_window_is_in_use_until_all_have_ended(void **state)
{
	static struct blockade blockade;
	uint32_t number;

	begin((struct actor_job){ .stage = 3 });
	blockade_begin(&scene, scene.node->workers, &blockade);
	number = send_large(1);
	expect_error(&actor, actor_read(&actor, 0, 0, "m", 0, 1, 1), -EBUSY, "the window is in use");
	expect_error(&actor, actor_await(&actor, send_large(1), 0)->status, -EBUSY, "the window is in use");
	expect_error(&actor, actor_set_blob(&actor, "key", 10, 'a'), -EBUSY, "window");
	blockade_end(&blockade);
	assert_int_equal(actor_await(&actor, number, 0)->status, 0);
	assert_int_equal(actor_read(&actor, 0, 0, "m", 0, 1, 1), 0);
	scene_close(&scene);
}

static void who_dies_in_the_middle_leaves_nothing(void **state)
{
	static struct blockade blockade;
	struct job *job;

	for (unsigned has_placement = 0; has_placement < 2; has_placement++) {
		begin((struct actor_job){ .stage = 3,
					  .optimizer_placement =
						  has_placement ? PLACEMENT_HOST : PLACEMENT_DEFAULT });
		blockade_begin(&scene, scene.node->workers, &blockade);
		send_large(1);
		actor_die(&actor);
		blockade_end(&blockade);
		scene_settle(&scene);
		job = play();
		for (uint32_t pack = 0; pack < job->catalog.pack_count; pack++)
			assert_int_equal(residency_is_planned(job) && residency_is_pinned(job, pack), 0);
		assert_true(queue_is_empty(&job->members.lingering));
		scene_close(&scene);
	}
}

static void begin_two(void)
{
	struct actor_job job = { .stage = 3, .world_size = 2 };

	assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
	enter(&actor, &job);
	job.rank = 1;
	enter(&other, &job);
	assert_int_equal(make_two_ready(&actor, &other), 0);
}

static void what_waits_for_a_step_is_told_when_it_does_not_come(void **state)
{
	Tierd__Wire__TensorPiece pieces[] = { piece_of(0, 2, "parameter", 0, 10, 0),
					      piece_of(1, 0, "m", 0, 10, 64),
					      piece_of(2, 0, "m", 0, 10, 128) };
	uint32_t step, number;

	begin_two();
	step = actor_send_step(&actor, 0.1f);
	number = actor_send_read_many(&actor, pieces, 3, 1);
	actor_die(&other);
	assert_int_equal(actor_await(&actor, step, 0)->status, -ESTALE);
	assert_int_equal(actor_await(&actor, number, 0)->status, -ESTALE);
	assert_null(play()->members.ranks[0]->batch);
	assert_int_equal(actor_read(&actor, 0, 0, "m", 0, 1, 0), 0);
	scene_close(&scene);

	begin_two();
	step = actor_send_step(&actor, 0.1f);
	number = actor_send_read_many(&actor, pieces, 3, 2);
	expect_error(&actor, actor_await(&actor, number, 0)->status, -ECANCELED, "was refused");
	number = actor_send_read_many(&actor, pieces, 3, 1);
	assert_int_equal(actor_await(&other, actor_send_step(&other, 0.1f), 0)->status, 0);
	assert_int_equal(actor_await(&actor, step, 0)->status, 0);
	assert_int_equal(actor_await(&actor, number, 0)->status, 0);
	scene_close(&scene);
}

/* The second step of rank 1 differs from that of rank 0. */
static void what_waits_for_a_step_that_is_refused_is_told_so(void **state)
{
	Tierd__Wire__TensorPiece pieces[] = { piece_of(1, 0, "m", 0, 10, 64),
					      piece_of(2, 0, "m", 0, 10, 128) };
	uint32_t first, second, number;

	begin_two();
	first = actor_send_step(&other, 0.1f);
	second = actor_send_step(&other, 0.3f);
	number = actor_send_read_many(&other, pieces, 2, 2);
	(void)actor_send_step(&actor, 0.1f);
	(void)actor_send_step(&actor, 0.2f);
	assert_int_equal(actor_await(&other, first, 0)->status, 0);
	assert_int_equal(actor_await(&other, second, 0)->status, -EINVAL);
	assert_int_equal(actor_await(&other, number, 0)->status, -ECANCELED);
	assert_null(play()->members.ranks[1]->batch);
	assert_int_equal(actor_await(&other, actor_send_read_many(&other, pieces, 2, 1), 0)->status, 0);
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pieces_are_as_if_they_were_read_one_by_one),
		cmocka_unit_test(a_reader_reads_many_pieces_kept_or_not),
		cmocka_unit_test(one_piece_that_cannot_be_read_refuses_all),
		cmocka_unit_test(gradients_are_read_alone),
		cmocka_unit_test(the_window_is_in_use_until_all_have_ended),
		cmocka_unit_test(who_dies_in_the_middle_leaves_nothing),
		cmocka_unit_test(what_waits_for_a_step_is_told_when_it_does_not_come),
		cmocka_unit_test(what_waits_for_a_step_that_is_refused_is_told_so),
	};

	log_open(LOG_LEVEL_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
