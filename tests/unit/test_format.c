#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "offload/format.h"
#include "tests/unit/kernel_support.h"

/* The nearest of the two neighbours, and of two equally near ones the larger in magnitude. */
static uint16_t nearest(float value)
{
	uint32_t bits = float_bits(value);
	uint32_t below = bits & 0xffff0000, distance = bits - below;

	return (uint16_t)((distance < 0x8000 ? below : below + 0x10000) >> 16);
}

static void a_split_is_the_nearest_bf16_and_the_rest(void **state)
{
	for (unsigned i = 0; i < ARRAY_LENGTH(kernel_counts); i++) {
		size_t count = kernel_counts[i];
		_cleanup_free_ float *master = allocate_floats(count), *joined = allocate_floats(count);
		_cleanup_free_ uint16_t *parameter = allocate(count * sizeof(uint16_t));
		_cleanup_free_ int16_t *remainder = allocate(count * sizeof(int16_t));

		for (size_t j = 0; j < count; j++)
			master[j] = random_any();
		format_keep(MASTER_SPLIT, master, count, parameter, remainder);
		format_restore(MASTER_SPLIT, parameter, remainder, count, joined);
		for (size_t j = 0; j < count; j++) {
			assert_true(is_same(joined[j], master[j]));
			if (isnan(master[j]))
				assert_true(isnan(bfloat16_to_float(parameter[j])));
			else
				assert_int_equal(parameter[j], nearest(master[j]));
		}
	}
}

static void remainders_are_signed(void **state)
{
	static const struct {
		uint32_t master;
		uint16_t parameter;
		int remainder;
	} cases[] = {
		{ 0x3f800000, 0x3f80, 0 },  { 0x3f807fff, 0x3f80, 0x7fff },  { 0x3f808000, 0x3f81, -0x8000 },
		{ 0x3f80ffff, 0x3f81, -1 }, { 0xbf808000, 0xbf81, -0x8000 }, { 0xbf807fff, 0xbf80, 0x7fff },
		{ 0x80000000, 0x8000, 0 },  { 0x00000001, 0x0000, 1 },	     { 0x00008000, 0x0001, -0x8000 },
		{ 0x7f7fffff, 0x7f80, -1 }, { 0xff7fffff, 0xff80, -1 },	     { 0x7f800000, 0x7f80, 0 },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		float master = float_from_bits(cases[i].master);
		uint16_t parameter;
		int16_t remainder;

		format_keep(MASTER_SPLIT, &master, 1, &parameter, &remainder);
		assert_int_equal(parameter, cases[i].parameter);
		assert_int_equal(remainder, cases[i].remainder);
	}
}

static void a_nan_stays_one(void **state)
{
	static const uint32_t nans[] = { 0x7f800001, 0x7f807fff, 0x7f808000,
					 0x7fffffff, 0xff800001, 0xffffffff };

	for (size_t i = 0; i < ARRAY_LENGTH(nans); i++) {
		float master = float_from_bits(nans[i]), joined;
		uint16_t parameter;
		int16_t remainder;

		format_keep(MASTER_SPLIT, &master, 1, &parameter, &remainder);
		format_restore(MASTER_SPLIT, &parameter, &remainder, 1, &joined);
		assert_true(isnan(bfloat16_to_float(parameter)));
		assert_true(isnan(joined));
	}
}

/* Every bf16 is its own nearest: a parameter set by value has no remainder. */
static void bf16_values_split_exactly(void **state)
{
	for (uint32_t high = 0; high <= 0xffff; high++) {
		float master = float_from_bits(high << 16);
		uint16_t parameter;
		int16_t remainder;

		if (isnan(master))
			continue;
		format_keep(MASTER_SPLIT, &master, 1, &parameter, &remainder);
		assert_int_equal(parameter, high);
		assert_int_equal(remainder, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_split_is_the_nearest_bf16_and_the_rest),
		cmocka_unit_test(remainders_are_signed),
		cmocka_unit_test(a_nan_stays_one),
		cmocka_unit_test(bf16_values_split_exactly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
