/* The table of a communicator's life, pair by pair, and which GPUs are its members. With --picture it prints
 * the table of docs/architecture.md. */
#include <string.h>

#include "collectives/nccl/communicator.h"
#include "collectives/nccl/communicator_state.h"
#include "tests/unit/test.h"
#include "tests/unit/transitions.h"

static void each_pair_of_state_and_event(void **state)
{
	static const int next[COMMUNICATOR_STATES][COMMUNICATOR_EVENTS] = {
		[COMMUNICATOR_CREATING] = { [COMMUNICATOR_CREATED] = COMMUNICATOR_READY,
					    [COMMUNICATOR_GIVE_UP] = COMMUNICATOR_ABORTING },
		[COMMUNICATOR_READY] = { [COMMUNICATOR_CLOSE] = COMMUNICATOR_CLOSING,
					 [COMMUNICATOR_GIVE_UP] = COMMUNICATOR_ABORTING },
		[COMMUNICATOR_CLOSING] = { [COMMUNICATOR_FINALIZED] = COMMUNICATOR_CLOSED,
					   [COMMUNICATOR_GIVE_UP] = COMMUNICATOR_ABORTING },
		[COMMUNICATOR_ABORTING] = { [COMMUNICATOR_DRAINED] = COMMUNICATOR_ABORTED },
	};

	for (int from = 0; from < COMMUNICATOR_STATES; from++)
		for (int event = 0; event < COMMUNICATOR_EVENTS; event++)
			assert_int_equal(transition_after(&communicator_table, from, event),
					 next[from][event] ? next[from][event] : REFUSED);
	assert_int_equal(transition_reach(&communicator_table, 1), (1u << COMMUNICATOR_STATES) - 1);
}

static void ranks_of_one_gpu_are_one_member(void **state)
{
	const unsigned gpus[] = { 7, 3, 7, 0, 3 }, expected[] = { 0, 1, 0, 2, 1 };
	unsigned members[ARRAY_LENGTH(gpus)];

	assert_int_equal(communicator_map(gpus, ARRAY_LENGTH(gpus), members), 3);
	assert_memory_equal(members, expected, sizeof(members));
}

int main(int count, char **arguments)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_pair_of_state_and_event),
		cmocka_unit_test(ranks_of_one_gpu_are_one_member),
	};

	if (count == 2 && strcmp(arguments[1], "--picture") == 0)
		return transition_print(&communicator_table);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
