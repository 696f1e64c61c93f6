/* The loss scale: when it grows and backs off, where it stops, what is refused. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "common/cleanup.h"
#include "daemon/model/loss_scale.h"
#include "tests/unit/test.h"

static const struct loss_scale_options dynamic = { 1024, 3, 2, 0.25f, 100 };

static void take_steps(struct loss_scale *scale, const struct loss_scale_options *options, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		loss_scale_move(scale, options, false);
}

static void it_grows_after_as_many_steps_as_the_interval_says(void **state)
{
	struct loss_scale scale = { 1024, 0 };

	take_steps(&scale, &dynamic, 2);
	assert_true(scale.value == 1024);
	take_steps(&scale, &dynamic, 1);
	assert_true(scale.value == 2048);
	take_steps(&scale, &dynamic, 3);
	assert_true(scale.value == 4096);
}

static void an_overflow_takes_it_back_and_counts_anew(void **state)
{
	struct loss_scale scale = { 1024, 0 };

	take_steps(&scale, &dynamic, 2);
	loss_scale_move(&scale, &dynamic, true);
	assert_true(scale.value == 256);
	take_steps(&scale, &dynamic, 2);
	assert_true(scale.value == 256);
	take_steps(&scale, &dynamic, 1);
	assert_true(scale.value == 512);
}

static void it_stops_at_the_minimum_and_before_infinity(void **state)
{
	struct loss_scale scale = { 1024, 0 };

	for (unsigned i = 0; i < 10; i++)
		loss_scale_move(&scale, &dynamic, true);
	assert_true(scale.value == 100);
	take_steps(&scale, &dynamic, 3 * 200);
	assert_true(isfinite(scale.value) && scale.value > 1e38f);
}

static void a_static_one_stays(void **state)
{
	const struct loss_scale_options options = { 1024, 0, 2, 0.5f, 1 };
	struct loss_scale scale = { 1024, 0 };

	take_steps(&scale, &options, 5000);
	loss_scale_move(&scale, &options, true);
	assert_true(scale.value == 1024);
}

static void what_makes_no_sense_is_refused(void **state)
{
	static const struct {
		struct loss_scale_options options;
		const char *text;
	} bad[] = {
		{ { -1, 0, 2, 0.5f, 1 }, "loss_scale is -1" },
		{ { INFINITY, 0, 2, 0.5f, 1 }, "loss_scale is inf" },
		{ { 8, 5, 1, 0.5f, 1 }, "loss_scale_growth is 1" },
		{ { 8, 5, INFINITY, 0.5f, 1 }, "loss_scale_growth is inf" },
		{ { 8, 5, NAN, 0.5f, 1 }, "loss_scale_growth is nan" },
		{ { 8, 5, 2, 0, 1 }, "loss_scale_backoff is 0" },
		{ { 8, 5, 2, 1, 1 }, "loss_scale_backoff is 1" },
		{ { 8, 5, 2, 0.5f, 0 }, "loss_scale_minimum is 0" },
		{ { 8, 5, 2, 0.5f, 9 }, "at most loss_scale, which is 8" },
	};
	const struct loss_scale_options unused = { 8, 0, NAN, NAN, NAN };
	char message[256];

	assert_int_equal(loss_scale_check(&dynamic, message, sizeof(message)), 0);
	assert_int_equal(loss_scale_check(&unused, message, sizeof(message)), 0);
	for (size_t i = 0; i < ARRAY_LENGTH(bad); i++) {
		assert_int_equal(loss_scale_check(&bad[i].options, message, sizeof(message)), -EINVAL);
		assert_non_null(strstr(message, bad[i].text));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_grows_after_as_many_steps_as_the_interval_says),
		cmocka_unit_test(an_overflow_takes_it_back_and_counts_anew),
		cmocka_unit_test(it_stops_at_the_minimum_and_before_infinity),
		cmocka_unit_test(a_static_one_stays),
		cmocka_unit_test(what_makes_no_sense_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
