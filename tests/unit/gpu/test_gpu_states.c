/* The states of a pack on a GPU: every pair of state and change. With --picture it prints the table of
 * docs/architecture.md. */
#include <string.h>

#include "daemon/gpu/own.h"
#include "tests/unit/test.h"
#include "tests/unit/transitions.h"

#define IN(state) (1u << GPU_##state)
#define WITH_SLOT (IN(EXPECTED) | IN(COPYING) | IN(ORDERED) | IN(RESIDENT))
#define ALL ((1u << GPU_STATES) - 1)

static const struct gpu_transition *find(unsigned state, unsigned change)
{
	unsigned next;

	return (const struct gpu_transition *)transition_find(&gpu_table, state, change, &next);
}

#define FOREACH_TRANSITION(state, change, found)                                                             \
	for (unsigned state = 0; state < GPU_STATES; state++)                                                \
		for (unsigned change = 0; change < GPU_CHANGES; change++)                                    \
			for (const struct gpu_transition *found = find(state, change); found; found = NULL)

static void a_slot_is_given_back_when_its_pack_leaves_it(void **state)
{
	FOREACH_TRANSITION(from, change, found)
	{
		bool had = WITH_SLOT >> from & 1, has = WITH_SLOT >> found->transition.to & 1;

		assert_int_equal(!had && has, change == GPU_TAKE);
		assert_int_equal(had && !has, found->action == gpu_give_slot);
	}
}

static void who_is_in_the_queue_is_queued(void **state)
{
	FOREACH_TRANSITION(from, change, found)
	{
		assert_int_equal(found->transition.to == GPU_QUEUED, found->action == gpu_enter_queue);
		assert_int_equal(from == GPU_QUEUED, found->action == gpu_leave_queue ||
							     found->action == gpu_leave_queue_and_expect);
	}
}

static void what_clients_see_is_taken_from_them_only_without_a_lease(void **state)
{
	FOREACH_TRANSITION(from, change, found)
	{
		assert_int_equal(from == GPU_RESIDENT, found->guard == gpu_close);
		assert_int_equal(found->transition.to == GPU_RESIDENT, found->action == gpu_publish);
	}
}

/* Whose copy the GPU has in its order, nothing but its end stops. */
static void a_copy_ends_before_anything_else_happens(void **state)
{
	for (unsigned change = 0; change < GPU_CHANGES; change++)
		assert_int_equal(find(GPU_ORDERED, change) != NULL, change == GPU_END || change == GPU_FAIL);
}

static void every_state_is_reached_and_left_again(void **state)
{
	for (unsigned from = 0; from < GPU_STATES; from++)
		assert_int_equal(transition_reach(&gpu_table, 1u << from), ALL);
}

static const char *or_dash(const char *name)
{
	return strcmp(name, "NULL") == 0 ? "-" : name;
}

static int print_picture(void)
{
	printf("| state | event | guard | next state | action |\n|---|---|---|---|---|\n");
	FOREACH_TRANSITION(from, change, found)
	printf("| %s | %s | %s | %s | %s |\n", gpu_table.states[from], gpu_table.events[change],
	       or_dash(found->guard_name), gpu_table.states[found->transition.to],
	       or_dash(found->action_name));
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_slot_is_given_back_when_its_pack_leaves_it),
		cmocka_unit_test(who_is_in_the_queue_is_queued),
		cmocka_unit_test(what_clients_see_is_taken_from_them_only_without_a_lease),
		cmocka_unit_test(a_copy_ends_before_anything_else_happens),
		cmocka_unit_test(every_state_is_reached_and_left_again),
	};

	if (argc == 2 && strcmp(argv[1], "--picture") == 0)
		return print_picture();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
