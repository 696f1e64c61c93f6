#include <string.h>

#include "offload/optimizer/norm.h"
#include "tests/unit/kernel_support.h"
#include "tests/unit/test.h"

static double lane_sum(const float *values, size_t count, size_t lane)
{
	double sum = 0;

	for (size_t i = lane; i < count; i += 16) {
		double x = values[i];
		double square = x * x;

		sum = sum + square;
	}
	return sum;
}

/* Of the lanes first, first + step, …: the last round's halves are lanes 0 and 1, so the tree is by low bits.
 */
static double tree_sum(const float *values, size_t count, size_t lane, size_t step)
{
	if (step == 16)
		return lane_sum(values, count, lane);
	return tree_sum(values, count, lane, step * 2) + tree_sum(values, count, lane + step, step * 2);
}

static double block_sum(enum simd_level level, const float *values, size_t count)
{
	double lanes[NORM_LANES] = { 0 };

	norm_find_kernel(level)(lanes, values, count);
	return norm_combine(lanes);
}

static void assert_sum(enum simd_level level, const float *values, size_t count)
{
	double expected = tree_sum(values, count, 0, 1);
	double sum = block_sum(level, values, count);

	assert_true(memcmp(&sum, &expected, sizeof(sum)) == 0 || (isnan(sum) && isnan(expected)));
}

static float random_number(void)
{
	return random_ordinary(random_bits() % 2 ? 1e-3f : 1e3f);
}

/* Of numbers, then with special values among them. */
static void kernels_follow_the_document(void **state)
{
	float (*const draws[])(void) = { random_number, random_any };

	FOREACH_LEVEL(level)
	for (unsigned i = 0; i < 2 * ARRAY_LENGTH(kernel_counts); i++) {
		size_t count = kernel_counts[i / 2];
		_cleanup_free_ float *values = allocate_floats(count);

		for (size_t j = 0; j < count; j++)
			values[j] = draws[i % 2]();
		assert_sum(level, values, count);
	}
}

static void the_largest_values_stay_finite(void **state)
{
	_cleanup_free_ float *values = allocate_floats(NORM_BLOCK_ELEMENTS);

	for (size_t i = 0; i < NORM_BLOCK_ELEMENTS; i++)
		values[i] = float_from_bits(0x7f7fffff);
	FOREACH_LEVEL(level)
	{
		assert_true(isfinite(block_sum(level, values, NORM_BLOCK_ELEMENTS)));
		assert_sum(level, values, NORM_BLOCK_ELEMENTS);
	}
}

static void one_bad_element_anywhere_shows(void **state)
{
	static const uint32_t bad[] = { 0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001 };
	_cleanup_free_ float *values = allocate_floats(77);

	for (size_t i = 0; i < 77; i++)
		values[i] = random_ordinary(1);
	FOREACH_LEVEL(level)
	for (size_t i = 0; i < 77; i++)
		for (size_t j = 0; j < ARRAY_LENGTH(bad); j++) {
			float good = values[i];

			values[i] = float_from_bits(bad[j]);
			assert_false(isfinite(block_sum(level, values, 77)));
			values[i] = good;
			assert_true(isfinite(block_sum(level, values, 77)));
		}
}

static void the_sum_of_nothing_is_zero(void **state)
{
	FOREACH_LEVEL(level)
	{
		double sum = block_sum(level, NULL, 0);

		assert_true(sum == 0 && !signbit(sum));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(kernels_follow_the_document),
		cmocka_unit_test(the_largest_values_stay_finite),
		cmocka_unit_test(one_bad_element_anywhere_shows),
		cmocka_unit_test(the_sum_of_nothing_is_zero),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
