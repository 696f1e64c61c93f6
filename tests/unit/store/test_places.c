#include <errno.h>

#include "offload/store/places.h"
#include "tests/unit/test.h"

static void every_place_is_taken_once(void **state)
{
	bool is_taken[131] = { false };
	struct places places;

	assert_int_equal(places_init(&places, 131), 0);
	for (unsigned i = 0; i < 131; i++) {
		uint32_t place = places_take(&places);

		assert_true(place < 131);
		assert_false(is_taken[place]);
		is_taken[place] = true;
	}
	assert_int_equal(places_take(&places), PLACES_NONE);
	assert_int_equal(places.free_count, 0);
	places_give(&places, 77);
	assert_int_equal(places_take(&places), 77);
	places_destroy(&places);
}

static void second_copies_lie_in_the_other_half(void **state)
{
	struct places places;

	assert_int_equal(places_init(&places, 256), 0);
	for (unsigned i = 0; i < 128; i++) {
		assert_int_equal(places_take(&places), i);
		assert_int_equal(places_take_second(&places), 128 + i);
	}
	assert_int_equal(places_take_second(&places), PLACES_NONE);
	/* Wherever there is room, if there is none of its own. */
	places_give(&places, 7);
	assert_int_equal(places_take_second(&places), 7);
	places_destroy(&places);
}

static void a_place_is_free_when_nobody_names_it(void **state)
{
	struct places places;
	uint32_t place;

	assert_int_equal(places_init(&places, 1), 0);
	place = places_take(&places);
	assert_int_equal(places_name(&places, place), 0);
	assert_int_equal(places_name(&places, place), 0);
	places_give(&places, place);
	places_give(&places, place);
	assert_false(places_is_free(&places, place));
	assert_int_equal(places_take(&places), PLACES_NONE);
	places_give(&places, place);
	assert_true(places_is_free(&places, place));
	assert_int_equal(places_take(&places), place);
	places_destroy(&places);
}

static void a_place_that_a_map_names_is_not_taken(void **state)
{
	struct places places;

	assert_int_equal(places_init(&places, 3), 0);
	assert_int_equal(places_name(&places, 1), 0);
	assert_int_equal(places.free_count, 2);
	assert_int_equal(places_take(&places), 0);
	assert_int_equal(places_take(&places), 2);
	assert_int_equal(places_take(&places), PLACES_NONE);
	places_destroy(&places);
}

static void names_are_counted_to_a_bound(void **state)
{
	struct places places;

	assert_int_equal(places_init(&places, 1), 0);
	for (unsigned i = 0; i < PLACES_MAX_NAMES; i++)
		assert_int_equal(places_name(&places, 0), 0);
	assert_int_equal(places_name(&places, 0), -EMFILE);
	for (unsigned i = 0; i < PLACES_MAX_NAMES; i++)
		places_give(&places, 0);
	assert_true(places_is_free(&places, 0));
	places_destroy(&places);
}

static void places_that_are_new_are_free(void **state)
{
	struct places places;

	assert_int_equal(places_init(&places, 60), 0);
	for (unsigned i = 0; i < 60; i++)
		assert_int_equal(places_take(&places), i);
	assert_int_equal(places_prepare(&places, 200), 0);
	assert_int_equal(places_take(&places), PLACES_NONE);
	places_grow(&places, 200);
	assert_int_equal(places.free_count, 140);
	assert_false(places_is_free(&places, 59));
	for (unsigned i = 60; i < 200; i++)
		assert_int_equal(places_take(&places), i);
	assert_int_equal(places_take(&places), PLACES_NONE);
	places_give(&places, 0);
	assert_int_equal(places_take(&places), 0);
	places_destroy(&places);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_place_is_taken_once),
		cmocka_unit_test(second_copies_lie_in_the_other_half),
		cmocka_unit_test(a_place_is_free_when_nobody_names_it),
		cmocka_unit_test(a_place_that_a_map_names_is_not_taken),
		cmocka_unit_test(names_are_counted_to_a_bound),
		cmocka_unit_test(places_that_are_new_are_free),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
