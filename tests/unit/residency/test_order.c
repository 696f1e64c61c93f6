/* The order of gathers: learned, followed, deviated from. */
#include "common/cleanup.h"
#include "daemon/residency/order.h"
#include "tests/unit/test.h"

static struct order *make(uint32_t capacity)
{
	struct order *order;

	assert_int_equal(order_new("train", capacity, &order), 0);
	return order;
}

static void note_all(struct order *order, const uint32_t *units, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		order_note(order, units[i]);
}

static void nothing_is_expected_before_the_first_pass_ends(void **state)
{
	struct order *order = make(8);

	assert_int_equal(order_expected(order, 0), ORDER_NONE);
	order_note(order, 3);
	assert_int_equal(order_expected(order, 0), ORDER_NONE);
	order_finish_pass(order);
	assert_int_equal(order_expected(order, 0), 3);
	order_free(order);
}

static void a_pass_is_followed_and_wraps(void **state)
{
	const uint32_t pass[] = { 0, 1, 2, 1, 0 };
	struct order *order = make(8);

	note_all(order, pass, 5);
	order_finish_pass(order);
	for (unsigned i = 0; i < 12; i++) {
		assert_int_equal(order_expected(order, 0), pass[i % 5]);
		assert_int_equal(order_expected(order, 1), pass[(i + 1) % 5]);
		order_note(order, pass[i % 5]);
	}
	assert_int_equal(order_expected(order, 5), ORDER_NONE);
	order_free(order);
}

static void a_skipped_unit_moves_the_position(void **state)
{
	const uint32_t pass[] = { 0, 1, 2, 3, 4 };
	struct order *order = make(8);

	note_all(order, pass, 5);
	order_finish_pass(order);
	order_note(order, 0);
	order_note(order, 3);
	assert_int_equal(order_expected(order, 0), 4);
	order_free(order);
}

static void an_unknown_unit_leaves_the_position(void **state)
{
	const uint32_t pass[] = { 0, 1, 2 };
	struct order *order = make(8);

	note_all(order, pass, 3);
	order_finish_pass(order);
	order_note(order, 0);
	order_note(order, 77);
	assert_int_equal(order_expected(order, 0), 1);
	order_free(order);
}

static void a_unit_that_is_far_ahead_leaves_the_position(void **state)
{
	struct order *order = make(200);

	for (uint32_t unit = 0; unit < 200; unit++)
		order_note(order, unit);
	order_finish_pass(order);
	order_note(order, 150);
	assert_int_equal(order_expected(order, 0), 0);
	order_free(order);
}

static void the_last_pass_replaces_what_was_learned(void **state)
{
	const uint32_t old[] = { 0, 1 }, new[] = { 5, 6, 7 };
	struct order *order = make(8);

	note_all(order, old, 2);
	order_finish_pass(order);
	note_all(order, new, 3);
	order_finish_pass(order);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(order_expected(order, i), new[i]);
	/* A pass without gathers teaches nothing. */
	order_finish_pass(order);
	assert_int_equal(order_expected(order, 0), 5);
	order_free(order);
}

static void a_pass_beyond_the_capacity_is_learned_as_far_as_it_goes(void **state)
{
	struct order *order = make(4);

	for (uint32_t unit = 0; unit < 10; unit++)
		order_note(order, unit);
	order_finish_pass(order);
	assert_int_equal(order->learned_count, 4);
	assert_int_equal(order_expected(order, 3), 3);
	order_free(order);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_expected_before_the_first_pass_ends),
		cmocka_unit_test(a_pass_is_followed_and_wraps),
		cmocka_unit_test(a_skipped_unit_moves_the_position),
		cmocka_unit_test(an_unknown_unit_leaves_the_position),
		cmocka_unit_test(a_unit_that_is_far_ahead_leaves_the_position),
		cmocka_unit_test(the_last_pass_replaces_what_was_learned),
		cmocka_unit_test(a_pass_beyond_the_capacity_is_learned_as_far_as_it_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
