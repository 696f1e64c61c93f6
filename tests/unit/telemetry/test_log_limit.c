#include "daemon/telemetry/log_limit.h"
#include "tests/unit/test.h"

#define SECOND UINT64_C(1000000000)

static unsigned count_allowed(struct log_limit *limit, unsigned lines, uint64_t now_ns)
{
	unsigned allowed = 0;

	for (unsigned i = 0; i < lines; i++)
		allowed += log_limit_allows(limit, now_ns);
	return allowed;
}

static void a_flood_is_cut_off_and_counted(void **state)
{
	struct log_limit limit = { .what = "floods" };

	assert_int_equal(count_allowed(&limit, 1000, 5 * SECOND), LOG_LIMIT_LINES);
	assert_int_equal(limit.dropped, 1000 - LOG_LIMIT_LINES);
	assert_int_equal(count_allowed(&limit, 1, (5 + LOG_LIMIT_SECONDS) * SECOND - 1), 0);
}

static void lines_are_let_through_again_later(void **state)
{
	struct log_limit limit = { .what = "floods" };

	count_allowed(&limit, 1000, SECOND);
	assert_int_equal(count_allowed(&limit, 1000, (1 + LOG_LIMIT_SECONDS) * SECOND), LOG_LIMIT_LINES);
}

static void few_lines_are_all_there(void **state)
{
	struct log_limit limit = { .what = "floods" };

	for (uint64_t second = 0; second < 1000; second++)
		assert_int_equal(count_allowed(&limit, 1, second * SECOND), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_flood_is_cut_off_and_counted),
		cmocka_unit_test(lines_are_let_through_again_later),
		cmocka_unit_test(few_lines_are_all_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
