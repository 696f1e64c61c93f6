/* The states of a job's store: every pair of state and event. With --picture it prints the table of
 * docs/architecture.md. */
#include <string.h>

#include "daemon/durability/job_store.h"
#include "tests/unit/test.h"
#include "tests/unit/transitions.h"

static int after(int state, int event)
{
	return transition_after(&job_store_table, state, event);
}

static void a_job_has_one_store_at_a_time(void **state)
{
	for (int before = 0; before < JOB_STORE_STATES; before++) {
		bool is_none = before == JOB_STORE_NONE;

		assert_int_equal(after(before, JOB_STORE_MADE), is_none ? JOB_STORE_NEW : REFUSED);
		assert_int_equal(after(before, JOB_STORE_FOUND), is_none ? JOB_STORE_COMMITTED : REFUSED);
	}
}

static void a_commit_is_of_a_job_that_stays(void **state)
{
	for (int before = 0; before < JOB_STORE_STATES; before++) {
		bool stays = before == JOB_STORE_NEW || before == JOB_STORE_COMMITTED;

		assert_int_equal(after(before, JOB_STORE_COMMIT), stays ? JOB_STORE_COMMITTED : REFUSED);
	}
}

/* Others are in the store of a fork or of its origin: both have commits. */
static void only_a_job_with_a_commit_leaves_a_store_to_others(void **state)
{
	for (int before = 0; before < JOB_STORE_STATES; before++) {
		bool is_leaving = before == JOB_STORE_LEAVING;

		assert_int_equal(after(before, JOB_STORE_LEAVE),
				 before == JOB_STORE_COMMITTED ? JOB_STORE_LEAVING : REFUSED);
		assert_int_equal(after(before, JOB_STORE_REMOVED), is_leaving ? JOB_STORE_LEFT : REFUSED);
		assert_int_equal(after(before, JOB_STORE_KEPT), is_leaving ? JOB_STORE_ABANDONED : REFUSED);
	}
}

static void a_store_is_closed_when_nothing_is_written_to_it(void **state)
{
	for (int before = 0; before < JOB_STORE_STATES; before++) {
		bool may_close = before != JOB_STORE_NONE && before != JOB_STORE_LEAVING;

		assert_int_equal(after(before, JOB_STORE_CLOSE), may_close ? JOB_STORE_NONE : REFUSED);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_job_has_one_store_at_a_time),
		cmocka_unit_test(a_commit_is_of_a_job_that_stays),
		cmocka_unit_test(only_a_job_with_a_commit_leaves_a_store_to_others),
		cmocka_unit_test(a_store_is_closed_when_nothing_is_written_to_it),
	};

	if (argc == 2 && strcmp(argv[1], "--picture") == 0)
		return transition_print(&job_store_table);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
