/* What is known to be damaged: counted once, whoever finds it and how often, until it is found good. */
#include "daemon/scrub/damaged.h"
#include "tests/unit/test.h"

static struct damaged damaged;

static int forget(void **state)
{
	damaged_clear(&damaged);
	return 0;
}

static void a_place_counts_as_who_read_it_last_has_found_it(void **state)
{
	assert_int_equal(damaged_blocks(&damaged), 0);
	damaged_set(&damaged, 7, 2);
	damaged_set(&damaged, 3, 1);
	damaged_set(&damaged, 9, 4);
	damaged_set(&damaged, 7, 3);
	assert_int_equal(damaged_blocks(&damaged), 8);
	damaged_set(&damaged, 3, 0);
	damaged_set(&damaged, 4, 0);
	assert_int_equal(damaged_blocks(&damaged), 7);
	damaged_set(&damaged, 9, 0);
	damaged_set(&damaged, 7, 0);
	assert_int_equal(damaged_blocks(&damaged), 0);
	assert_null(damaged.places);
}

static void a_place_that_is_being_read_never_counts_less(void **state)
{
	damaged_set(&damaged, 7, 2);
	damaged_raise(&damaged, 7, 1);
	assert_int_equal(damaged_blocks(&damaged), 2);
	damaged_raise(&damaged, 7, 3);
	damaged_raise(&damaged, 8, 1);
	damaged_raise(&damaged, 9, 0);
	assert_int_equal(damaged_blocks(&damaged), 4);
}

static void places_are_known_in_any_order_up_to_a_limit(void **state)
{
	for (uint64_t i = 0; i < DAMAGED_MAX_PLACES; i++)
		damaged_set(&damaged, i ^ 255, 1);
	damaged_set(&damaged, DAMAGED_MAX_PLACES, 1);
	assert_int_equal(damaged_blocks(&damaged), DAMAGED_MAX_PLACES);
	for (uint64_t i = 1; i < DAMAGED_MAX_PLACES; i++)
		assert_true(damaged.places[i - 1].place < damaged.places[i].place);
	damaged_set(&damaged, 5, 0);
	damaged_set(&damaged, DAMAGED_MAX_PLACES, 2);
	assert_int_equal(damaged_blocks(&damaged), DAMAGED_MAX_PLACES + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(a_place_counts_as_who_read_it_last_has_found_it, forget),
		cmocka_unit_test_teardown(a_place_that_is_being_read_never_counts_less, forget),
		cmocka_unit_test_teardown(places_are_known_in_any_order_up_to_a_limit, forget),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
