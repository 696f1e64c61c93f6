/* The pace of a scrub: all extents once within a period, evenly, whatever their number; at once when it is
 * hurried. */
#include "common/cleanup.h"
#include "daemon/scrub/scrub_pace.h"
#include "tests/unit/test.h"

#define SECOND UINT64_C(1000000000)
#define DAY (86400 * SECOND)
#define BEGIN (7 * SECOND)

static void extents_come_due_evenly_over_the_period(void **state)
{
	static const uint64_t extents[] = { 1, 3, 100, 1000000, UINT64_C(1) << 30 };

	for (size_t i = 0; i < ARRAY_LENGTH(extents); i++) {
		struct scrub_pace pace = { .began_ns = BEGIN };

		assert_int_equal(scrub_pace_due(&pace, extents[i], 30 * DAY, BEGIN), 0);
		assert_int_equal(scrub_pace_due(&pace, extents[i], 30 * DAY, BEGIN + 15 * DAY),
				 extents[i] / 2);
		assert_int_equal(scrub_pace_due(&pace, extents[i], 30 * DAY, BEGIN + 30 * DAY), extents[i]);
		assert_int_equal(scrub_pace_due(&pace, extents[i], 30 * DAY, BEGIN + 300 * DAY), extents[i]);
	}
}

static void what_was_read_is_not_due_again_in_the_pass(void **state)
{
	struct scrub_pace pace = { .began_ns = BEGIN };

	assert_false(scrub_pace_advance(&pace, 40, 100, BEGIN + 12 * DAY));
	assert_int_equal(scrub_pace_due(&pace, 100, 30 * DAY, BEGIN + 12 * DAY), 0);
	assert_int_equal(scrub_pace_due(&pace, 100, 30 * DAY, BEGIN + 15 * DAY), 10);
	assert_false(scrub_pace_advance(&pace, 59, 100, BEGIN + 29 * DAY));
	assert_true(scrub_pace_advance(&pace, 1, 100, BEGIN + 30 * DAY));
	assert_int_equal(pace.done, 0);
	assert_int_equal(scrub_pace_due(&pace, 100, 30 * DAY, BEGIN + 30 * DAY), 0);
	assert_int_equal(scrub_pace_due(&pace, 100, 30 * DAY, BEGIN + 60 * DAY), 100);
}

/* A timer that is set for then is not in vain, and none is set for before. */
static void at_the_next_time_one_more_is_due(void **state)
{
	for (uint64_t extents = 1; extents < 2000; extents += 7) {
		struct scrub_pace pace = { .began_ns = BEGIN };
		uint64_t next = scrub_pace_next_ns(&pace, extents, 30 * DAY, BEGIN);

		assert_true(next > BEGIN && next <= BEGIN + 30 * DAY);
		assert_int_equal(scrub_pace_due(&pace, extents, 30 * DAY, next - SECOND), 0);
		assert_int_equal(scrub_pace_due(&pace, extents, 30 * DAY, next + SECOND), 1);
		assert_int_equal(scrub_pace_next_ns(&pace, extents, 30 * DAY, next + SECOND), next + SECOND);
	}
}

static void without_a_period_only_what_is_hurried_is_due(void **state)
{
	struct scrub_pace pace = { .began_ns = BEGIN, .done = 3 };

	assert_int_equal(scrub_pace_due(&pace, 10, 0, BEGIN + 1000 * DAY), 0);
	assert_int_equal(scrub_pace_next_ns(&pace, 10, 0, BEGIN), UINT64_MAX);
	pace.is_hurried = true;
	assert_int_equal(scrub_pace_due(&pace, 10, 0, BEGIN), 7);
	assert_int_equal(scrub_pace_next_ns(&pace, 10, 0, BEGIN), BEGIN);
	assert_true(scrub_pace_advance(&pace, 7, 10, BEGIN));
	assert_false(pace.is_hurried);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(extents_come_due_evenly_over_the_period),
		cmocka_unit_test(what_was_read_is_not_due_again_in_the_pass),
		cmocka_unit_test(at_the_next_time_one_more_is_due),
		cmocka_unit_test(without_a_period_only_what_is_hurried_is_due),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
