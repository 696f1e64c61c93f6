/* The states of a step, and of a pack's early update: every pair of state and event. With --picture, or
 * --early-picture, it prints the table of docs/architecture.md. */
#include <string.h>

#include "daemon/update/early_state.h"
#include "daemon/update/step_table.h"
#include "tests/unit/test.h"
#include "tests/unit/transitions.h"

static int after(int state, int event)
{
	return transition_after(&step_table, state, event);
}

static bool is_writing(enum step_state state)
{
	return step_is_writing(&(struct current_step){ .state = state });
}

static bool is_decided(enum step_state state)
{
	return step_is_decided(&(struct current_step){ .state = state });
}

static void a_decision_cannot_be_taken_back(void **state)
{
	for (int before = 0; before < STEP_STATES; before++)
		for (int event = 0; event < STEP_EVENTS; event++) {
			int next = after(before, event);

			if (next == REFUSED || !is_decided(before) || is_decided(next))
				continue;
			assert_true(event == STEP_EVENT_APPLIED || event == STEP_EVENT_CANCELLED);
			assert_int_equal(next, STEP_OPEN);
		}
}

static void an_epoch_may_end_at_any_time(void **state)
{
	for (int before = 0; before < STEP_STATES; before++)
		assert_int_equal(after(before, STEP_EVENT_ABORTED), is_decided(before) ? before : STEP_OPEN);
}

static void a_job_may_break_at_any_time_of_a_writing(void **state)
{
	for (int before = 0; before < STEP_STATES; before++)
		assert_int_equal(after(before, STEP_EVENT_CANCELLED),
				 is_writing(before) ? STEP_OPEN : REFUSED);
}

/* Ranks come to a step or to a writing, and not to both. */
static void a_step_and_a_writing_exclude_each_other(void **state)
{
	for (int before = 0; before < STEP_STATES; before++)
		for (int event = 0; event < STEP_EVENTS; event++) {
			int next = after(before, event);

			if (next != REFUSED && before != STEP_OPEN && next != STEP_OPEN)
				assert_int_equal(is_writing(before), is_writing(next));
		}
}

static void only_what_is_decided_is_applied(void **state)
{
	for (int before = 0; before < STEP_STATES; before++) {
		bool is_applying = before == STEP_APPLYING || before == WRITING_APPLYING;

		assert_int_equal(after(before, STEP_EVENT_APPLIED), is_applying ? STEP_OPEN : REFUSED);
		if (is_decided(before))
			assert_int_equal(after(before, STEP_EVENT_FAILED), REFUSED);
	}
}

static void expect_way(const enum step_event *events, size_t count, bool is_of_writing)
{
	int state = STEP_OPEN;

	for (size_t i = 0; i < count; i++) {
		state = after(state, events[i]);
		assert_int_not_equal(state, REFUSED);
		if (i + 1 < count)
			assert_int_equal(is_writing(state), is_of_writing);
	}
	assert_int_equal(state, STEP_OPEN);
}

#define EXPECT_WAY(is_of_writing, ...)                                                                       \
	do {                                                                                                 \
		const enum step_event events[] = { __VA_ARGS__ };                                            \
		expect_way(events, sizeof(events) / sizeof(events[0]), is_of_writing);                       \
	} while (0)

static void all_ways_lead_back_to_an_open_step(void **state)
{
	EXPECT_WAY(false, STEP_EVENT_CLOSED, STEP_EVENT_CLOSED, STEP_EVENT_COMPLETE, STEP_EVENT_DECIDED,
		   STEP_EVENT_APPLIED);
	EXPECT_WAY(false, STEP_EVENT_CLOSED, STEP_EVENT_COMPLETE, STEP_EVENT_HANDED_OUT, STEP_EVENT_DECIDED,
		   STEP_EVENT_APPLIED);
	EXPECT_WAY(false, STEP_EVENT_CLOSED, STEP_EVENT_DECIDED, STEP_EVENT_APPLIED);
	EXPECT_WAY(false, STEP_EVENT_CLOSED, STEP_EVENT_FAILED);
	EXPECT_WAY(false, STEP_EVENT_CLOSED, STEP_EVENT_COMPLETE, STEP_EVENT_FAILED);
	EXPECT_WAY(true, STEP_EVENT_ENTERED, STEP_EVENT_ENTERED, STEP_EVENT_HANDED_OUT, STEP_EVENT_DECIDED,
		   STEP_EVENT_PLACE, STEP_EVENT_APPLY, STEP_EVENT_APPLIED);
	EXPECT_WAY(true, STEP_EVENT_ENTERED, STEP_EVENT_HANDED_OUT, STEP_EVENT_DECIDED, STEP_EVENT_FLUSH,
		   STEP_EVENT_PLACE, STEP_EVENT_APPLY, STEP_EVENT_APPLIED);
	EXPECT_WAY(true, STEP_EVENT_ENTERED, STEP_EVENT_HANDED_OUT, STEP_EVENT_FAILED);
}

/* ---- Early updates ---- */

static int after_early(int state, int event)
{
	return transition_after(&early_table, state, event);
}

static void what_is_early_is_withdrawn_at_any_time(void **state)
{
	for (int before = 0; before < EARLY_STATES; before++)
		assert_int_equal(after_early(before, EARLY_EVENT_WITHDRAW),
				 before == EARLY_NOTHING ? REFUSED : EARLY_NOTHING);
}

/* And written, if it is in no slot. */
static void nothing_is_seen_before_it_is_computed(void **state)
{
	for (int before = 0; before < EARLY_STATES; before++) {
		assert_int_equal(after_early(before, EARLY_EVENT_ADOPT),
				 before == EARLY_WRITING ? EARLY_ADOPTED : REFUSED);
		assert_int_equal(after_early(before, EARLY_EVENT_PUBLISH),
				 before == EARLY_READY || before == EARLY_ADOPTED ? EARLY_NOTHING : REFUSED);
	}
}

static void each_state_is_reached_and_left_again(void **state)
{
	for (unsigned from = 0; from < EARLY_STATES; from++)
		assert_int_equal(transition_reach(&early_table, 1u << from), (1u << EARLY_STATES) - 1);
	for (unsigned from = 0; from < STEP_STATES; from++)
		assert_int_equal(transition_reach(&step_table, 1u << from), (1u << STEP_STATES) - 1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_decision_cannot_be_taken_back),
		cmocka_unit_test(an_epoch_may_end_at_any_time),
		cmocka_unit_test(a_job_may_break_at_any_time_of_a_writing),
		cmocka_unit_test(a_step_and_a_writing_exclude_each_other),
		cmocka_unit_test(only_what_is_decided_is_applied),
		cmocka_unit_test(all_ways_lead_back_to_an_open_step),
		cmocka_unit_test(what_is_early_is_withdrawn_at_any_time),
		cmocka_unit_test(nothing_is_seen_before_it_is_computed),
		cmocka_unit_test(each_state_is_reached_and_left_again),
	};

	if (argc == 2 && strcmp(argv[1], "--picture") == 0)
		return transition_print(&step_table);
	if (argc == 2 && strcmp(argv[1], "--early-picture") == 0)
		return transition_print(&early_table);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
