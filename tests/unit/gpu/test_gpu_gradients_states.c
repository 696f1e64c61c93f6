/* The states of a rank's gradients on a GPU: every pair of state and change. With --picture it prints the
 * table of docs/architecture.md. */
#include <string.h>

#include "daemon/gpu/own.h"
#include "tests/unit/test.h"
#include "tests/unit/transitions.h"

#define IN(state) (1u << GRADIENTS_##state)
#define IN_FLIGHT (IN(MAKING) | IN(PINNING) | IN(UNPINNING) | IN(ENDING))
#define WITH_MEMBER (IN(MAKING) | IN(PINNING) | IN(OPEN) | IN(UNPINNING))
#define ALL ((1u << GRADIENTS_STATES) - 1)

static const struct gpu_gradients_transition *find(unsigned state, unsigned change)
{
	unsigned next;

	return (const struct gpu_gradients_transition *)transition_find(&gpu_gradients_table, state, change,
									&next);
}

#define FOREACH_TRANSITION(state, change, found)                                                             \
	for (unsigned state = 0; state < GRADIENTS_STATES; state++)                                          \
		for (unsigned change = 0; change < GRADIENTS_CHANGES; change++)                              \
			for (const struct gpu_gradients_transition *found = find(state, change); found;      \
			     found = NULL)

static bool asks_the_gpu(const struct gpu_gradients_transition *found)
{
	return found->action == gpu_make_gradients || found->action == gpu_pin_gradients ||
	       found->action == gpu_unpin_gradients || found->action == gpu_destroy_gradients;
}

static void what_is_asked_of_the_gpu_is_in_flight(void **state)
{
	FOREACH_TRANSITION(from, change, found)
	assert_int_equal(IN_FLIGHT >> found->transition.to & 1, asks_the_gpu(found));
}

static void the_member_is_held_from_the_memory_to_the_end_of_its_pin(void **state)
{
	FOREACH_TRANSITION(from, change, found)
	{
		bool had = WITH_MEMBER >> from & 1, has = WITH_MEMBER >> found->transition.to & 1;

		assert_int_equal(!had && has, found->action == gpu_make_gradients);
		assert_int_equal(had && !has, found->action == gpu_refuse_gradients ||
						      found->action == gpu_give_gradients_back);
	}
}

/* Also one whose memory could not be pinned has had its pin asked back. */
static void memory_goes_when_nothing_is_pinned(void **state)
{
	FOREACH_TRANSITION(from, change, found)
	if (found->action == gpu_destroy_gradients)
		assert_int_equal(from, GRADIENTS_CLOSED);
}

static void every_state_is_reached_and_left_again(void **state)
{
	for (unsigned from = 0; from < GRADIENTS_STATES; from++)
		assert_int_equal(transition_reach(&gpu_gradients_table, 1u << from), ALL);
}

static int print_picture(void)
{
	printf("| state | event | next state | action |\n|---|---|---|---|\n");
	FOREACH_TRANSITION(from, change, found)
	printf("| %s | %s | %s | %s |\n", gpu_gradients_table.states[from],
	       gpu_gradients_table.events[change], gpu_gradients_table.states[found->transition.to],
	       found->action_name);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_asked_of_the_gpu_is_in_flight),
		cmocka_unit_test(the_member_is_held_from_the_memory_to_the_end_of_its_pin),
		cmocka_unit_test(memory_goes_when_nothing_is_pinned),
		cmocka_unit_test(every_state_is_reached_and_left_again),
	};

	if (argc == 2 && strcmp(argv[1], "--picture") == 0)
		return print_picture();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
