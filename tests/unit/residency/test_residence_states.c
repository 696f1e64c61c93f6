/* The states of a pack's residence: every pair of state and event. With --picture it prints the table of
 * docs/architecture.md. */
#include <stdio.h>
#include <string.h>

#include "daemon/residency/own.h"
#include "tests/unit/test.h"
#include "tests/unit/transitions.h"

#define IN(state) (1u << RESIDENCE_##state)
#define WITH_SLOT                                                                                            \
	(IN(LOADING) | IN(RESIDENT) | IN(UNPUBLISHED) | IN(DUE_LOADING) | IN(DUE_RESIDENT) |                 \
	 IN(DUE_UNPUBLISHED) | IN(UPDATING))
#define CLAIMED                                                                                              \
	(IN(DUE_ABSENT) | IN(DUE_LOADING) | IN(DUE_RESIDENT) | IN(DUE_UNPUBLISHED) | IN(UPDATING) |          \
	 IN(STREAMING))

#define ALL ((1u << RESIDENCE_STATES) - 1)

static const struct residence_transition *find(unsigned state, unsigned event)
{
	unsigned next;

	return (const struct residence_transition *)transition_find(&residence_table, state, event, &next);
}

typedef void look_at(enum residence_state state, enum residence_event event,
		     const struct residence_transition *transition);

/* But for the end of all of them. */
static void for_each_transition(look_at *look)
{
	for (unsigned state = 0; state < RESIDENCE_STATES; state++)
		for (unsigned event = 0; event < RESIDENCE_FORGET; event++)
			if (find(state, event))
				look(state, event, find(state, event));
}

static bool is_in(unsigned states, enum residence_state state)
{
	return states >> state & 1;
}

static void expect_slot_moves(enum residence_state state, enum residence_event event,
			      const struct residence_transition *transition)
{
	bool had = is_in(WITH_SLOT, state), has = is_in(WITH_SLOT, transition->transition.to);

	/* Whoever loads, fills or updates has taken one before. */
	if (!had && has)
		assert_true(event == RESIDENCE_LOAD || event == RESIDENCE_FILL ||
			    event == RESIDENCE_BEGIN_LOADED);
	assert_int_equal(had && !has, transition->action == give_slot || transition->action == evict);
}

static void a_slot_is_given_back_when_its_pack_leaves_it(void **state)
{
	for_each_transition(expect_slot_moves);
}

static void expect_queue_moves(enum residence_state state, enum residence_event event,
			       const struct residence_transition *transition)
{
	assert_int_equal(transition->transition.to == RESIDENCE_QUEUED, transition->action == enter_queue);
	assert_int_equal(state == RESIDENCE_QUEUED,
			 transition->action == leave_queue || transition->action == leave_queue_and_load);
}

static void who_is_in_the_queue_is_queued(void **state)
{
	for_each_transition(expect_queue_moves);
}

static void expect_claim_moves(enum residence_state state, enum residence_event event,
			       const struct residence_transition *transition)
{
	bool was = is_in(CLAIMED, state), is = is_in(CLAIMED, transition->transition.to);

	assert_int_equal(!was && is, event == RESIDENCE_CLAIM);
	assert_int_equal(was && !is, event == RESIDENCE_END);
}

static void what_a_sweep_has_claimed_is_its_own_until_it_has_ended(void **state)
{
	for_each_transition(expect_claim_moves);
	for (unsigned claimed = 0; claimed < RESIDENCE_STATES; claimed++) {
		if (!is_in(CLAIMED, claimed))
			continue;
		assert_null(find(claimed, RESIDENCE_CLAIM));
		assert_null(find(claimed, RESIDENCE_LOAD));
		assert_null(find(claimed, RESIDENCE_EVICT));
	}
}

static void expect_closing(enum residence_state state, enum residence_event event,
			   const struct residence_transition *transition)
{
	bool was = state == RESIDENCE_RESIDENT || state == RESIDENCE_DUE_RESIDENT;
	bool is = transition->transition.to == RESIDENCE_RESIDENT ||
		  transition->transition.to == RESIDENCE_DUE_RESIDENT;

	assert_int_equal(was && !is, transition->guard != NULL);
	assert_int_equal(!was && is, transition->action == publish);
}

static void what_clients_see_is_taken_from_them_only_without_a_lease(void **state)
{
	for_each_transition(expect_closing);
}

static void every_state_is_reached_and_left_again(void **state)
{
	for (unsigned from = 0; from < RESIDENCE_STATES; from++)
		assert_int_equal(transition_reach(&residence_table, 1u << from), ALL);
}

static void whatever_it_is_it_goes_with_the_arena(void **state)
{
	for (unsigned from = 0; from < RESIDENCE_STATES; from++)
		assert_int_equal(find(from, RESIDENCE_FORGET)->transition.to, RESIDENCE_ABSENT);
}

static const char *or_dash(const char *name)
{
	return strcmp(name, "NULL") == 0 ? "-" : name;
}

static int print_picture(void)
{
	printf("| state | event | guard | next state | action |\n|---|---|---|---|---|\n");
	for (unsigned state = 0; state < RESIDENCE_STATES; state++)
		for (unsigned event = 0; event < RESIDENCE_FORGET; event++) {
			const struct residence_transition *row = find(state, event);

			if (row)
				printf("| %s | %s | %s | %s | %s |\n", residence_table.states[state],
				       residence_table.events[event], or_dash(row->guard_name),
				       residence_table.states[row->transition.to], or_dash(row->action_name));
		}
	printf("| any | %s | - | absent | forget |\n", residence_table.events[RESIDENCE_FORGET]);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slot_is_given_back_when_its_pack_leaves_it),
		cmocka_unit_test(who_is_in_the_queue_is_queued),
		cmocka_unit_test(what_a_sweep_has_claimed_is_its_own_until_it_has_ended),
		cmocka_unit_test(what_clients_see_is_taken_from_them_only_without_a_lease),
		cmocka_unit_test(every_state_is_reached_and_left_again),
		cmocka_unit_test(whatever_it_is_it_goes_with_the_arena),
	};

	if (argc == 2 && strcmp(argv[1], "--picture") == 0)
		return print_picture();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
