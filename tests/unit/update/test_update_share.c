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

/* A thousand elements there, and nothing else meanwhile. */
static void measure(enum share_side side, uint64_t took_ns)
{
	share_begin(&share, side, ELEMENTS, 0);
	share_end(&share, side, ELEMENTS, took_ns);
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
		enum share_side side = share_choose(&share, fraction, ELEMENTS);

		share_begin(&share, side, ELEMENTS, 0);
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
	assert_int_equal(share_choose(&share, 0.5f, 1000), SHARE_GPUS);
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(share_choose(&share, 0.5f, 200), SHARE_PROCESSORS);
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
	share_end(&share, SHARE_GPUS, ELEMENTS, 100);
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
	share_begin(&share, SHARE_GPUS, ELEMENTS, 1000000);
	share_end(&share, SHARE_GPUS, ELEMENTS, 1000100);
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
		cmocka_unit_test(both_sides_end_at_about_the_same_time),
		cmocka_unit_test(gpus_that_are_not_measured_get_one_piece),
		cmocka_unit_test(each_step_tries_gpus_again),
		cmocka_unit_test(what_was_long_ago_counts_little),
		cmocka_unit_test(only_time_with_something_to_do_counts),
		cmocka_unit_test(what_a_side_did_is_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
