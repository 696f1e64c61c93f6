#include <string.h>

#include "collectives/reduce.h"
#include "common/float16.h"
#include "tests/unit/kernel_support.h"
#include "tests/unit/test.h"

struct part {
	bool is_there;
	float value;
};

/* docs/numerics.md, with absent sides left out and no arithmetic done for them. */
static struct part tree(const struct part *parts, unsigned count)
{
	struct part left, right;
	unsigned split = 1;

	if (count == 1)
		return parts[0];
	while (split * 2 < count)
		split *= 2;
	left = tree(parts, split);
	right = tree(parts + split, count - split);
	if (!left.is_there)
		return right;
	if (right.is_there)
		left.value = left.value + right.value;
	return left;
}

struct contributions {
	enum reduce_format format;
	unsigned rank_count;
	size_t count;
	void *arrays[REDUCE_MAX_RANKS];
};

static void contributions_new(struct contributions *all, enum reduce_format format, unsigned rank_count,
			      size_t count, unsigned absent_of_eight)
{
	all->format = format;
	all->rank_count = rank_count;
	all->count = count;
	for (unsigned rank = 0; rank < rank_count; rank++) {
		bool is_absent = random_bits() % 8 < absent_of_eight;

		all->arrays[rank] = is_absent ? NULL : allocate(count * reduce_element_bytes(format));
		for (size_t i = 0; !is_absent && i < count; i++) {
			float value = random_bits() % 8 ? random_ordinary(1) : random_any();

			if (format == REDUCE_BF16)
				((uint16_t *)all->arrays[rank])[i] = bfloat16_from_float(value);
			else if (format == REDUCE_FP16)
				((uint16_t *)all->arrays[rank])[i] = random_bits() % 2
									     ? (uint16_t)random_bits()
									     : float16_from_float(value);
			else
				((float *)all->arrays[rank])[i] = value;
		}
	}
	if (!all->arrays[rank_count - 1] && absent_of_eight > 0) {
		all->arrays[rank_count - 1] = allocate(count * 4);
		memset(all->arrays[rank_count - 1], 0x3c, count * 4);
	}
}

static void contributions_free(struct contributions *all)
{
	for (unsigned rank = 0; rank < all->rank_count; rank++)
		free(all->arrays[rank]);
}

static float expected(const struct contributions *all, bool is_added, float old, size_t i)
{
	struct part parts[REDUCE_MAX_RANKS];
	float sum;

	for (unsigned rank = 0; rank < all->rank_count; rank++) {
		const void *array = all->arrays[rank];

		parts[rank].is_there = array != NULL;
		if (array && all->format == REDUCE_BF16)
			parts[rank].value = float_from_bits((uint32_t)((const uint16_t *)array)[i] << 16);
		else if (array && all->format == REDUCE_FP16)
			parts[rank].value = (float)half_value(((const uint16_t *)array)[i]);
		else if (array)
			parts[rank].value = ((const float *)array)[i];
	}
	sum = tree(parts, all->rank_count).value;
	return is_added ? old + sum : sum;
}

static void assert_sums(enum simd_level level, const struct contributions *all, bool is_added)
{
	_cleanup_free_ float *sum = allocate_floats(all->count), *old = allocate_floats(all->count);

	for (size_t i = 0; i < all->count; i++)
		sum[i] = old[i] = random_any();
	reduce_sum_kernel(level, all->format)(sum, is_added, (const void *const *)all->arrays,
					      all->rank_count, all->count);
	for (size_t i = 0; i < all->count; i++)
		assert_true(is_same(sum[i], expected(all, is_added, old[i], i)));
}

static void check(unsigned rank_count, size_t count, unsigned absent_of_eight)
{
	struct contributions all;

	for (enum reduce_format format = 0; format < REDUCE_FORMATS; format++) {
		contributions_new(&all, format, rank_count, count, absent_of_eight);
		FOREACH_LEVEL(level)
		{
			assert_sums(level, &all, false);
			assert_sums(level, &all, true);
		}
		contributions_free(&all);
	}
}

static void every_count_of_elements_is_summed(void **state)
{
	for (unsigned i = 0; i < ARRAY_LENGTH(kernel_counts); i++)
		check(4, kernel_counts[i], 0);
}

static void every_count_of_ranks_is_summed_in_order(void **state)
{
	for (unsigned rank_count = 1; rank_count <= 70; rank_count++)
		check(rank_count, 67, 0);
}

static void absent_ranks_contribute_nothing(void **state)
{
	for (unsigned rank_count = 1; rank_count <= 40; rank_count++)
		for (unsigned absent = 1; absent <= 7; absent++)
			check(rank_count, 35, absent);
	check(4, 3001, 3);
	check(11, 3001, 6);
}

static void a_thousand_ranks_are_summed(void **state)
{
	check(REDUCE_MAX_RANKS, 1100, 0);
	check(REDUCE_MAX_RANKS, 40, 4);
	check(1000, 40, 7);
}

/* The one number that a careless zero for an absent rank would change. */
static void minus_zero_stays_minus_zero(void **state)
{
	const float minus_zeros[40] = { [0 ... 39] = -0.0f };
	const void *contributions[5] = { NULL, minus_zeros, NULL, NULL, NULL };
	float sum[40];

	FOREACH_LEVEL(level)
	{
		memset(sum, 0x55, sizeof(sum));
		reduce_sum_kernel(level, REDUCE_FP32)(sum, false, contributions, 5, 40);
		for (size_t i = 0; i < 40; i++)
			assert_int_equal(float_bits(sum[i]), 0x80000000);
		reduce_sum_kernel(level, REDUCE_FP32)(sum, true, contributions, 5, 40);
		for (size_t i = 0; i < 40; i++)
			assert_int_equal(float_bits(sum[i]), 0x80000000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_count_of_elements_is_summed),
		cmocka_unit_test(every_count_of_ranks_is_summed_in_order),
		cmocka_unit_test(absent_ranks_contribute_nothing),
		cmocka_unit_test(a_thousand_ranks_are_summed),
		cmocka_unit_test(minus_zero_stays_minus_zero),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
