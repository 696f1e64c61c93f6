/* What an optimizer keeps, given to a job before it is ready: by ranks that write side by side, at the wrong
 * time, and go in the middle of it. */
#include <errno.h>
#include <unistd.h>

#include "daemon/model/job.h"
#include "tests/unit/test.h"
#include "tests/unit/values/values_test.h"

#define SMALL 1001
#define ELEMENTS 700001 /* of an odd place on, over three extents of fp32 */
#define STEP 41

static struct actor ranks[2];

static void enter(uint32_t rank, uint32_t optimizer_placement)
{
	static const struct actor_tensor tensors[] = {
		{ "small", FORMAT_BF16, INITIALIZE_ONES, SMALL, false },
		{ "large", FORMAT_BF16, INITIALIZE_ONES, ELEMENTS, false },
		{ "ice", FORMAT_BF16, INITIALIZE_ONES, 10, true },
	};
	const struct actor_job job = {
		.rank = rank, .world_size = 2, .stage = 3, .optimizer_placement = optimizer_placement
	};

	assert_int_equal(actor_enter(&scene, &ranks[rank]), 0);
	assert_int_equal(actor_open(&ranks[rank], &job), 0);
	assert_int_equal(actor_define(&ranks[rank], "unit", tensors, 3), 0);
}

static void begin(uint32_t optimizer_placement)
{
	assert_int_equal(scene_open(&(struct scene_options){ 0 }, &scene), 0);
	enter(0, optimizer_placement);
	enter(1, optimizer_placement);
}

/* A value for each element of each state. */
static float value_of(uint64_t at, uint32_t tensor, bool is_v)
{
	return (float)at + (tensor ? 0.25f : 0.5f) + (is_v ? 1e6f : 0);
}

static uint32_t send_piece(uint32_t rank, uint32_t tensor, bool is_v, uint64_t first, uint64_t count)
{
	/* Under either name. */
	static const char *const names[2][2] = { { "m", "exp_avg" }, { "exp_avg_sq", "v" } };
	float *window = (float *)ranks[rank].window.base;

	for (uint64_t i = 0; i < count; i++)
		window[i] = value_of(first + i, tensor, is_v);
	return actor_send_state(&ranks[rank], tensor, names[is_v][first % 2], STEP, first, count);
}

static void check(uint32_t tensor, bool is_v, uint64_t elements)
{
	const float *window = (const float *)ranks[0].window.base;

	for (uint64_t first = 0; first < elements; first += PIECE) {
		uint64_t count = elements - first < PIECE ? elements - first : PIECE;

		assert_int_equal(actor_read(&ranks[0], 0, tensor, is_v ? "v" : "m", first, count, STEP), 0);
		for (uint64_t i = 0; i < count; i++)
			if (window[i] != value_of(first + i, tensor, is_v))
				fail_msg("element %llu is %g", (unsigned long long)(first + i),
					 (double)window[i]);
	}
}

/* Both ranks, at once, in extents that they share. */
static void write_all(void)
{
	for (unsigned is_v = 0; is_v < 2; is_v++) {
		uint32_t number = send_piece(0, 0, is_v, 0, SMALL);

		for (uint64_t first = 0; first < ELEMENTS; first += PIECE) {
			uint64_t count = ELEMENTS - first < PIECE ? ELEMENTS - first : PIECE;
			uint32_t other = send_piece(1, 1, is_v, first, count);

			assert_int_equal(actor_await(&ranks[0], number, 0)->status, 0);
			number = send_piece(0, 0, is_v, first % SMALL, 1);
			assert_int_equal(actor_await(&ranks[1], other, 0)->status, 0);
		}
		assert_int_equal(actor_await(&ranks[0], number, 0)->status, 0);
	}
}

static void ranks_write_side_by_side(void **state)
{
	static const uint32_t placements[] = { PLACEMENT_NVME, PLACEMENT_HOST };

	for (unsigned i = 0; i < ARRAY_LENGTH(placements); i++) {
		begin(placements[i]);
		write_all();
		assert_int_equal(make_two_ready(&ranks[0], &ranks[1]), 0);
		assert_int_equal(play()->step, STEP);
		assert_int_equal(play()->catalog.units[0].updates, STEP);
		for (unsigned is_v = 0; is_v < 2; is_v++) {
			check(0, is_v, SMALL);
			check(1, is_v, ELEMENTS);
		}
		scene_close(&scene);
	}
}

static void what_is_not_written_is_zero(void **state)
{
	const float *window;

	begin(PLACEMENT_NVME);
	window = (const float *)ranks[0].window.base;
	assert_int_equal(actor_await(&ranks[0], send_piece(0, 1, false, 5, 1), 0)->status, 0);
	assert_int_equal(make_two_ready(&ranks[0], &ranks[1]), 0);
	assert_int_equal(actor_read(&ranks[0], 0, 1, "m", 4, 3, STEP), 0);
	assert_true(window[0] == 0 && window[1] == value_of(5, 1, false) && window[2] == 0);
	assert_int_equal(actor_read(&ranks[0], 0, 1, "v", 5, 1, STEP), 0);
	assert_true(window[0] == 0);
	scene_close(&scene);
}

/* Also of units that have had no update. */
static void what_is_given_to_host_memory_outlives_the_daemon(void **state)
{
	begin(PLACEMENT_HOST);
	*(float *)ranks[0].window.base = 5;
	assert_int_equal(actor_await(&ranks[0], actor_send_state(&ranks[0], 1, "m", 0, 7, 1), 0)->status, 0);
	assert_int_equal(make_two_ready(&ranks[0], &ranks[1]), 0);
	scene_settle(&scene);
	actor_die(&ranks[0]);
	actor_die(&ranks[1]);
	assert_int_equal(scene_restart(&(struct scene_options){ 0 }, &scene), 0);
	scene_settle(&scene);
	enter(0, PLACEMENT_HOST);
	enter(1, PLACEMENT_HOST);
	assert_int_equal(make_two_ready(&ranks[0], &ranks[1]), 0);
	assert_int_equal(actor_read(&ranks[0], 0, 1, "m", 7, 1, 0), 0);
	assert_true(*(float *)ranks[0].window.base == 5);
	scene_close(&scene);
}

static int ask(uint32_t tensor, const char *name, uint64_t step, uint64_t first, uint64_t count)
{
	return actor_await(&ranks[0], actor_send_state(&ranks[0], tensor, name, step, first, count), 0)
		->status;
}

static void what_is_no_state_is_refused(void **state)
{
	begin(PLACEMENT_NVME);
	assert_int_equal(ask(0, "w", STEP, 0, 1), -ENODATA);
	assert_int_equal(ask(0, "master", STEP, 0, 1), -EINVAL);
	assert_int_equal(ask(0, "parameter", STEP, 0, 1), -EINVAL);
	assert_int_equal(ask(2, "m", STEP, 0, 1), -ENODATA);
	assert_int_equal(ask(3, "m", STEP, 0, 1), -EINVAL);
	assert_int_equal(ask(0, "m", STEP, SMALL, 1), -ERANGE);
	assert_int_equal(ask(1, "m", STEP, 0, PIECE + 1), -E2BIG);
	assert_int_equal(ask(0, "m", UINT64_MAX, 0, 1), -EINVAL);
	assert_int_equal(ask(0, "m", STEP, 0, 1), 0);
	expect_error(&ranks[0], ask(0, "v", STEP + 1, 0, 1), -EINVAL,
		     "after step 41, and this after step 42");
	assert_int_equal(make_two_ready(&ranks[0], &ranks[1]), 0);
	assert_int_equal(ask(0, "m", STEP, 0, 1), -EBUSY);
	scene_close(&scene);
}

/* The other's turn comes, whoever goes, and the job waits for neither. */
static void a_rank_that_goes_lets_the_other_write(void **state)
{
	for (uint32_t goes = 0; goes < 2; goes++) {
		uint32_t numbers[2];

		begin(PLACEMENT_NVME);
		assert_int_equal(actor_await(&ranks[0], send_piece(0, 0, false, 0, 1), 0)->status, 0);
		numbers[0] = send_piece(0, 1, false, 0, PIECE);
		numbers[1] = send_piece(1, 1, true, 0, PIECE);
		actor_die(&ranks[goes]);
		assert_int_equal(actor_await(&ranks[!goes], numbers[!goes], 0)->status, 0);
		actor_die(&ranks[!goes]);
		scene_settle(&scene);
		assert_null(play());
		scene_close(&scene);
	}
}

/* Who is ready while what he has sent is being written has it written first. */
static void a_job_is_ready_when_all_is_written(void **state)
{
	uint32_t numbers[2];

	begin(PLACEMENT_NVME);
	assert_int_equal(actor_await(&ranks[0], send_piece(0, 0, false, 0, SMALL), 0)->status, 0);
	numbers[0] = send_piece(0, 1, false, 0, PIECE);
	numbers[1] = send_piece(1, 1, true, 0, PIECE);
	assert_int_equal(make_two_ready(&ranks[0], &ranks[1]), 0);
	assert_int_equal(actor_await(&ranks[0], numbers[0], 0)->status, 0);
	assert_int_equal(actor_await(&ranks[1], numbers[1], 0)->status, 0);
	check(1, false, PIECE);
	check(1, true, PIECE);
	scene_close(&scene);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_write_side_by_side),
		cmocka_unit_test(what_is_not_written_is_zero),
		cmocka_unit_test(what_is_given_to_host_memory_outlives_the_daemon),
		cmocka_unit_test(what_is_no_state_is_refused),
		cmocka_unit_test(a_rank_that_goes_lets_the_other_write),
		cmocka_unit_test(a_job_is_ready_when_all_is_written),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
