/* Who updates what comes next: as measured, or by a fraction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/cleanup.h"
#include "daemon/update/share.h"
#include "tests/unit/test.h"

#define ELEMENTS 1000

static struct share share;
/* A GPU copies two bytes for each element, and one for each whose state is there. */
static const struct share_piece piece = { .elements = ELEMENTS, .bus_bytes = 2 * ELEMENTS },
				small = { .elements = ELEMENTS / 5, .bus_bytes = 2 * ELEMENTS / 5 },
				there = { .elements = ELEMENTS, .bus_bytes = ELEMENTS, .is_there = true };

/* A thousand elements there, and nothing else meanwhile. */
static void measure(enum share_side side, uint64_t took_ns)
{
	share_begin(&share, side, &piece, 0);
	share_end(&share, side, &piece, took_ns);
}

static void begin(uint64_t processors_ns, uint64_t gpus_ns)
{
	share = (struct share){ .has_tried = true };
	measure(SHARE_PROCESSORS, processors_ns);
	measure(SHARE_GPUS, gpus_ns);
}

/* Of so many pieces that nobody has done yet, those that GPUs get. */
static unsigned count_gpus(float fraction, unsigned pieces)
{
	unsigned gpus = 0;

	for (unsigned i = 0; i < pieces; i++) {
		enum share_side side = share_choose(&share, fraction, &piece);

		share_begin(&share, side, &piece, 0);
		gpus += side == SHARE_GPUS;
	}
	return gpus;
}

static void a_fraction_is_kept_to_half_a_piece(void **state)
{
	static const float fractions[] = { 0, 0.25f, 0.5f, 0.9f, 1 };

	for (unsigned i = 0; i < ARRAY_LENGTH(fractions); i++) {
		share = (struct share){ 0 };
		assert_int_equal(count_gpus(fractions[i], 100), (unsigned)(fractions[i] * 100 + 0.5f));
	}
}

static void a_piece_of_another_length_counts_by_its_length(void **state)
{
	share = (struct share){ 0 };
	assert_int_equal(share_choose(&share, 0.5f, &piece), SHARE_GPUS);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(share_choose(&share, 0.5f, &small), SHARE_PROCESSORS);
}

/* Of pieces in turns, half of them. */
static void gpus_get_what_is_there(void **state)
{
	unsigned others = 0, kept = 0;

	share = (struct share){ 0 };
	for (unsigned i = 0; i < 100; i++) {
		others += share_choose(&share, 0.5f, &piece) == SHARE_GPUS;
		kept += share_choose(&share, 0.5f, &there) == SHARE_GPUS;
	}
	assert_in_range(others, 0, 1);
	assert_in_range(kept, 99, 100);
}

/* Half of the time: four pieces for each of the processors', where it would be two. */
static void what_is_there_takes_gpus_less_time(void **state)
{
	unsigned gpus = 0;

	begin(300, 150);
	assert_int_equal(count_gpus(-1, 99), 66);
	begin(300, 150);
	for (unsigned i = 0; i < 100; i++) {
		enum share_side side = share_choose(&share, -1, &there);

		share_begin(&share, side, &there, 0);
		gpus += side == SHARE_GPUS;
	}
	assert_int_equal(gpus, 80);
}

static void both_sides_end_at_about_the_same_time(void **state)
{
	begin(300, 100);
	assert_int_equal(count_gpus(-1, 100), 75);
	begin(100, 900);
	assert_int_equal(count_gpus(-1, 100), 10);
}

static void gpus_that_are_not_measured_get_one_piece(void **state)
{
	share = (struct share){ 0 };
	measure(SHARE_PROCESSORS, 100);
	assert_int_equal(count_gpus(-1, 10), 1);
	share_end(&share, SHARE_GPUS, &piece, 100);
	assert_true(count_gpus(-1, 10) > 1);
}

/* However slow they were. */
static void each_step_tries_gpus_again(void **state)
{
	begin(1, 1000000);
	assert_int_equal(count_gpus(-1, 10), 0);
	share_begin_step(&share);
	assert_int_equal(count_gpus(-1, 10), 1);
}

static void what_was_long_ago_counts_little(void **state)
{
	begin(100, 1000000000);
	for (unsigned i = 0; i < 40; i++)
		measure(SHARE_GPUS, 50);
	for (unsigned i = 0; i < 10; i++)
		measure(SHARE_PROCESSORS, 100000000);
	assert_true(count_gpus(-1, 100) > 50);
}

/* Elements that wait do not count as time when nothing waits. */
static void only_time_with_something_to_do_counts(void **state)
{
	begin(100, 100);
	share_begin(&share, SHARE_GPUS, &piece, 1000000);
	share_end(&share, SHARE_GPUS, &piece, 1000100);
	assert_int_equal(count_gpus(-1, 100), 50);
}

static void what_a_side_did_is_counted(void **state)
{
	begin(100, 100);
	measure(SHARE_GPUS, 100);
	assert_int_equal(share.sides[SHARE_PROCESSORS].all, ELEMENTS);
	assert_int_equal(share.sides[SHARE_GPUS].all, 2 * ELEMENTS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_fraction_is_kept_to_half_a_piece),
		cmocka_unit_test(a_piece_of_another_length_counts_by_its_length),
		cmocka_unit_test(gpus_get_what_is_there),
		cmocka_unit_test(what_is_there_takes_gpus_less_time),
		cmocka_unit_test(both_sides_end_at_about_the_same_time),
		cmocka_unit_test(gpus_that_are_not_measured_get_one_piece),
		cmocka_unit_test(each_step_tries_gpus_again),
		cmocka_unit_test(what_was_long_ago_counts_little),
		cmocka_unit_test(only_time_with_something_to_do_counts),
		cmocka_unit_test(what_a_side_did_is_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
