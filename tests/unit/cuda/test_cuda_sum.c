/* The kernels that sum contributions, wherever they run, give the bits of this processor's best level. */
#include <stdio.h>
#include <string.h>

#include "collectives/cuda/sum.h"
#include "common/float16.h"
#include "tests/unit/cuda/kernel_place.h"
#include "tests/unit/kernel_support.h"
#include "tests/unit/test.h"

struct contributions {
	enum reduce_format format;
	unsigned rank_count;
	size_t count;
	void *arrays[SUM_MAX_RANKS]; /* NULL: absent */
};

static void fill(void *array, enum reduce_format format, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		float value = random_bits() % 8 ? random_ordinary(1) : random_any();

		if (format == REDUCE_FP32)
			((float *)array)[i] = value;
		else if (format == REDUCE_BF16)
			((uint16_t *)array)[i] = bfloat16_from_float(value);
		else
			((uint16_t *)array)[i] = float16_from_float(value);
	}
}

/* At least one is there. */
static struct contributions contributions_new(enum reduce_format format, unsigned rank_count, size_t count,
					      unsigned absent_of_eight)
{
	struct contributions all = { .format = format, .rank_count = rank_count, .count = count };

	for (unsigned rank = 0; rank < rank_count; rank++)
		if (rank == rank_count / 2 || random_bits() % 8 >= absent_of_eight) {
			all.arrays[rank] = allocate(count * reduce_element_bytes(format));
			fill(all.arrays[rank], format, count);
		}
	return all;
}

static void contributions_free(struct contributions *all)
{
	for (unsigned rank = 0; rank < all->rank_count; rank++)
		free(all->arrays[rank]);
}

/* By array, the sum's last: so many bytes after one that is aligned, where it does not begin there itself. */
static size_t shifts[SUM_MAX_RANKS + 1];

static void *sent(const void *from, size_t bytes, size_t shift)
{
	char *there = place_allocate(bytes + shift);

	place_write(there + shift, from, bytes);
	return there + shift;
}

static void give_back(const void *there, size_t shift)
{
	if (there)
		place_free((char *)there - shift);
}

static void sum_there(const struct contributions *all, bool is_added, float *sum)
{
	struct sum_arguments with = { .sum = sent(sum, all->count * sizeof(float), shifts[SUM_MAX_RANKS]),
				      .count = all->count,
				      .rank_count = all->rank_count,
				      .is_added = is_added };
	size_t bytes = all->count * reduce_element_bytes(all->format);

	for (unsigned rank = 0; rank < all->rank_count; rank++)
		with.contributions[rank] =
			all->arrays[rank] ? sent(all->arrays[rank], bytes, shifts[rank]) : NULL;
	place_run(sum_kernel(all->format), &with, sum_blocks(all->count), SUM_THREADS);
	place_read(sum, with.sum, all->count * sizeof(float));
	give_back(with.sum, shifts[SUM_MAX_RANKS]);
	for (unsigned rank = 0; rank < all->rank_count; rank++)
		give_back(with.contributions[rank], shifts[rank]);
}

static void assert_sum(const struct contributions *all, bool is_added)
{
	_cleanup_free_ float *ours = allocate_floats(all->count), *expected = allocate_floats(all->count);

	for (size_t i = 0; i < all->count; i++)
		ours[i] = expected[i] = random_any();
	sum_there(all, is_added, ours);
	reduce_sum_kernel(simd_level(), all->format)(expected, is_added, (const void *const *)all->arrays,
						     all->rank_count, all->count);
	for (size_t i = 0; i < all->count; i++)
		if (!is_same(ours[i], expected[i]))
			fail_msg("format %d, %u ranks, %zu elements: sum %zu is %a, not %a", all->format,
				 all->rank_count, all->count, i, (double)ours[i], (double)expected[i]);
}

static void check(unsigned rank_count, size_t count, unsigned absent_of_eight)
{
	for (unsigned format = 0; format < REDUCE_FORMATS; format++) {
		struct contributions all = contributions_new(format, rank_count, count, absent_of_eight);

		assert_sum(&all, false);
		assert_sum(&all, true);
		contributions_free(&all);
	}
}

static void every_count_of_ranks_is_summed_in_order(void **state)
{
	for (unsigned rank_count = 1; rank_count <= SUM_MAX_RANKS; rank_count++)
		check(rank_count, 37, 0);
}

static void every_count_of_elements_is_summed(void **state)
{
	for (size_t count = 1; count < 20; count++)
		check(3, count, 0);
	check(4, 1027, 0);
}

static void absent_ranks_contribute_nothing(void **state)
{
	for (unsigned rank_count = 1; rank_count <= 20; rank_count++)
		for (unsigned absent = 1; absent <= 7; absent += 3)
			check(rank_count, 21, absent);
}

/* As where ranks' pieces of an array begin at any element. */
static void arrays_begin_at_any_element(void **state)
{
	for (unsigned sum_shift = 0; sum_shift < 16; sum_shift += 4)
		for (size_t count = 4; count < 80; count += 37) {
			for (unsigned rank = 0; rank < SUM_MAX_RANKS; rank++)
				shifts[rank] = (rank + sum_shift) % 4 * 4;
			shifts[SUM_MAX_RANKS] = sum_shift;
			check(5, count, 1);
		}
	for (unsigned shift = 2; shift < 16; shift += 2) {
		struct contributions all = contributions_new(REDUCE_BF16, 3, 41, 0);

		memset(shifts, 0, sizeof(shifts));
		shifts[1] = shift;
		assert_sum(&all, true);
		contributions_free(&all);
	}
	memset(shifts, 0, sizeof(shifts));
}

/* The one number that a careless zero for an absent rank would change. */
static void minus_zero_stays_minus_zero(void **state)
{
	static const float minus_zeros[6] = { -0.0f, -0.0f, -0.0f, -0.0f, -0.0f, -0.0f };
	static const uint16_t halves[6] = { 0x8000, 0x8000, 0x8000, 0x8000, 0x8000, 0x8000 };

	for (unsigned format = 0; format < REDUCE_FORMATS; format++) {
		struct contributions all = { .format = format, .rank_count = 5, .count = 6 };
		float sum[6];

		all.arrays[1] = format == REDUCE_FP32 ? (void *)minus_zeros : (void *)halves;
		sum_there(&all, false, sum);
		for (size_t i = 0; i < all.count; i++)
			assert_int_equal(float_bits(sum[i]), 0x80000000);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_count_of_ranks_is_summed_in_order),
		cmocka_unit_test(every_count_of_elements_is_summed),
		cmocka_unit_test(absent_ranks_contribute_nothing),
		cmocka_unit_test(arrays_begin_at_any_element),
		cmocka_unit_test(minus_zero_stays_minus_zero),
	};
	const char *why = place_open();

	if (why) {
		printf("skipped: %s\n", why);
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
