#include "common/float16.h"
#include "offload/optimizer/format.h"
#include "tests/unit/kernel_support.h"
#include "tests/unit/test.h"

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

static void every_fp16_has_its_value(void **state)
{
	for (uint32_t half = 0; half <= 0xffff; half++) {
		float wide = float16_to_float((uint16_t)half);
		double exact = half_value((uint16_t)half);

		if (isnan(exact)) {
			assert_true(isnan(wide));
			assert_true(isnan(half_value(float16_from_float(wide))));
			continue;
		}
		assert_true((double)wide == exact && !signbit(wide) == !signbit(exact));
		assert_int_equal(float16_from_float(wide), half);
	}
}

/* Each fp16, what is half way to the next, and the fp32 neighbours of both. */
static void fp16_is_the_nearest_of_all(void **state)
{
	for (uint32_t half = 0; half < 0x7c00; half++) {
		double next = half == 0x7bff ? 65536 : half_value((uint16_t)(half + 1));
		float places[] = { (float)half_value((uint16_t)half),
				   (float)((half_value((uint16_t)half) + next) / 2) };

		for (unsigned i = 0; i < 6; i++) {
			float value = float_from_bits(float_bits(places[i / 3]) + i % 3 - 1);

			if (isnan(value))
				continue;
			assert_int_equal(float16_from_float(value), nearest_half(value));
			assert_int_equal(float16_from_float(-value), nearest_half(-value));
		}
	}
	assert_int_equal(float16_from_float(65519.996f), 0x7bff);
	assert_int_equal(float16_from_float(65520), 0x7c00);
	assert_int_equal(float16_from_float(-INFINITY), 0xfc00);
	assert_int_equal(float16_from_float(-0.0f), 0x8000);
	assert_int_equal(float16_from_float(0x1p-25f), 0);
	assert_int_equal(float16_from_float(0x1.000002p-25f), 1);
}

static void an_fp16_keeps_its_master_beside_it(void **state)
{
	float masters[100], restored[100], beside[100];
	uint16_t halves[100];

	for (size_t i = 0; i < ARRAY_LENGTH(masters); i++)
		masters[i] = random_any();
	format_keep(MASTER_BESIDE, masters, ARRAY_LENGTH(masters), halves, beside);
	format_restore(MASTER_BESIDE, halves, beside, ARRAY_LENGTH(masters), restored);
	for (size_t i = 0; i < ARRAY_LENGTH(masters); i++) {
		assert_int_equal(float_bits(restored[i]), float_bits(masters[i]));
		if (isnan(masters[i]))
			assert_true(isnan(half_value(halves[i])));
		else
			assert_int_equal(halves[i], nearest_half(masters[i]));
	}
}

static void widening_gives_what_narrowing_kept(void **state)
{
	for (enum master_kind kind = (enum master_kind)0; kind < MASTER_KINDS; kind++) {
		const float values[] = { 1.5f, -0.0f, 0x1p-20f, 1024 };
		float parameters[ARRAY_LENGTH(values)], wide[ARRAY_LENGTH(values)];

		format_narrow(kind, values, ARRAY_LENGTH(values), parameters);
		format_widen(kind, parameters, ARRAY_LENGTH(values), wide);
		assert_memory_equal(wide, values, sizeof(values));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_split_is_the_nearest_bf16_and_the_rest),
		cmocka_unit_test(remainders_are_signed),
		cmocka_unit_test(a_nan_stays_one),
		cmocka_unit_test(bf16_values_split_exactly),
		cmocka_unit_test(every_fp16_has_its_value),
		cmocka_unit_test(fp16_is_the_nearest_of_all),
		cmocka_unit_test(an_fp16_keeps_its_master_beside_it),
		cmocka_unit_test(widening_gives_what_narrowing_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
