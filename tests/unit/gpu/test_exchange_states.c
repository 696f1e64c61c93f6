/* The states of an exchange, pair by pair, and the choice between two ways of bytes. With --picture it prints
 * the table of docs/architecture.md. */
#include <string.h>

#include "daemon/gpu/exchange.h"
#include "tests/unit/test.h"
#include "tests/unit/transitions.h"

static void each_pair_of_state_and_event(void **state)
{
	static const int next[EXCHANGE_STATES][EXCHANGE_EVENTS] = {
		[EXCHANGE_NONE] = { [EXCHANGE_BEGIN] = EXCHANGE_CREATING },
		[EXCHANGE_CREATING] = { [EXCHANGE_MADE] = EXCHANGE_READY,
					[EXCHANGE_FAIL] = EXCHANGE_BROKEN,
					[EXCHANGE_END] = EXCHANGE_ENDING },
		[EXCHANGE_READY] = { [EXCHANGE_FAIL] = EXCHANGE_BROKEN, [EXCHANGE_END] = EXCHANGE_ENDING },
		[EXCHANGE_BROKEN] = { [EXCHANGE_MADE] = EXCHANGE_BROKEN,
				      [EXCHANGE_FAIL] = EXCHANGE_BROKEN,
				      [EXCHANGE_END] = EXCHANGE_ENDING },
		[EXCHANGE_ENDING] = { [EXCHANGE_MADE] = EXCHANGE_ENDING, [EXCHANGE_FAIL] = EXCHANGE_ENDING },
	};

	for (int from = 0; from < EXCHANGE_STATES; from++)
		for (int event = 0; event < EXCHANGE_EVENTS; event++) {
			int expected = next[from][event] ? next[from][event] : REFUSED;

			if (from == EXCHANGE_ENDING && event == EXCHANGE_ENDED)
				expected = EXCHANGE_NONE;
			assert_int_equal(transition_after(&exchange_table, from, event), expected);
		}
	assert_int_equal(transition_reach(&exchange_table, 1), (1u << EXCHANGE_STATES) - 1);
}

/* Of 1000 bytes each, each way in so many nanoseconds; returns how many of the last 100 went together. */
static unsigned play(struct gpu_choice *choice, const uint64_t ns[GPU_WAYS])
{
	unsigned together = 0;

	for (unsigned i = 0; i < 200; i++) {
		enum gpu_way way = gpu_choice_next(choice);

		/* Each first one has something to set up. */
		gpu_choice_note(choice, way, 1000, choice->ways[way].seen == 0 ? 1000000 : ns[way]);
		together += i >= 100 && way == GPU_WAY_TOGETHER;
	}
	return together;
}

static void the_faster_way_is_taken(void **state)
{
	struct gpu_choice choice = { 0 };

	assert_int_equal(play(&choice, (const uint64_t[]){ 500, 499 }), 100);
	assert_false(gpu_choice_is_plain(&choice));
	choice = (struct gpu_choice){ 0 };
	assert_int_equal(play(&choice, (const uint64_t[]){ 500, 501 }), 0);
	assert_true(gpu_choice_is_plain(&choice));
}

static void both_ways_are_tried_before_one_is_taken(void **state)
{
	struct gpu_choice choice = { 0 };
	unsigned begun[GPU_WAYS] = { 0 };

	/* Those that break off say nothing. */
	for (unsigned i = 0; i < 40; i++)
		begun[gpu_choice_next(&choice)]++;
	assert_int_equal(begun[GPU_WAY_PLAIN], 20);
	assert_int_equal(begun[GPU_WAY_TOGETHER], 20);
	for (unsigned i = 0; i < GPU_CHOICE_TRIES; i++) {
		assert_false(gpu_choice_is_plain(&choice));
		gpu_choice_note(&choice, GPU_WAY_PLAIN, 1000, 1);
		assert_false(gpu_choice_is_plain(&choice));
		gpu_choice_note(&choice, GPU_WAY_TOGETHER, 1000, 2);
	}
	assert_true(gpu_choice_is_plain(&choice));
	for (uint64_t number = 0; number < 2; number++)
		assert_int_equal(gpu_choice_way(&choice, number), GPU_WAY_PLAIN);
}

/* The best of more would be better. */
static void as_many_of_each_way_count(void **state)
{
	struct gpu_choice choice = { 0 };

	for (unsigned i = 0; i < GPU_CHOICE_TRIES; i++)
		gpu_choice_note(&choice, GPU_WAY_TOGETHER, 1000, 3);
	gpu_choice_note(&choice, GPU_WAY_TOGETHER, 1000, 1);
	for (unsigned i = 0; i < GPU_CHOICE_TRIES; i++) {
		for (uint64_t number = 0; number < 4; number++)
			assert_int_equal(gpu_choice_way(&choice, number),
					 number % 2 ? GPU_WAY_PLAIN : GPU_WAY_TOGETHER);
		gpu_choice_note(&choice, GPU_WAY_PLAIN, 1000, 2);
	}
	assert_true(gpu_choice_is_plain(&choice));
}

static void what_is_given_is_not_measured(void **state)
{
	struct gpu_choice choice = { .is_given = true };

	assert_int_equal(play(&choice, (const uint64_t[]){ 500, 5000 }), 100);
	choice.is_given = false;
	assert_int_equal(play(&choice, (const uint64_t[]){ 500, 499 }), 100);
}

int main(int count, char **arguments)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_pair_of_state_and_event),
		cmocka_unit_test(the_faster_way_is_taken),
		cmocka_unit_test(both_ways_are_tried_before_one_is_taken),
		cmocka_unit_test(as_many_of_each_way_count),
		cmocka_unit_test(what_is_given_is_not_measured),
	};

	if (count == 2 && strcmp(arguments[1], "--picture") == 0)
		return transition_print(&exchange_table);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
