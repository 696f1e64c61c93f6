/* What has taken too long. */
#include "common/clock.h"
#include "tests/unit/test.h"

static void what_has_taken_longer_than_its_patience_is_late(void **state)
{
	assert_true(clock_is_late(1, 0));
	assert_true(clock_is_late(1, clock_now_ns() - 2));
	assert_false(clock_is_late(1, UINT64_MAX));
	assert_false(clock_is_late(clock_now_ns(), UINT64_MAX));
}

static void what_has_not_begun_is_never_late(void **state)
{
	assert_false(clock_is_late(0, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_has_taken_longer_than_its_patience_is_late),
		cmocka_unit_test(what_has_not_begun_is_never_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
