#include <string.h>
#include <xxhash.h>

#include "offload/optimizer/initializer_rows.h"
#include "tests/unit/kernel_support.h"
#include "tests/unit/test.h"

#define COUNT 1000000

static const struct initializer normal = { INITIALIZER_NORMAL, 0.0, 0.02, 42, 0x123456789abcdef0 };
static const struct initializer uniform = { INITIALIZER_UNIFORM, -0.5, 1.5, 42, 0x123456789abcdef0 };

/* The known answers that Random123 publishes. */
static void philox_gives_the_known_answers(void **state)
{
	static const struct {
		uint32_t counter[4], key[2], words[4];
	} cases[] = {
		{ { 0 }, { 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
		{ { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
		  { 0xffffffff, 0xffffffff },
		  { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
		{ { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
		  { 0xa4093822, 0x299f31d0 },
		  { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
	};

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		uint32_t words[4];

		initializer_philox(cases[i].counter, cases[i].key, words);
		assert_memory_equal(words, cases[i].words, sizeof(words));
	}
}

static uint32_t word_of(const struct initializer *initializer, uint64_t index)
{
	uint32_t key[2] = { (uint32_t)initializer->seed, (uint32_t)(initializer->seed >> 32) };
	uint32_t counter[4] = { (uint32_t)(index / 4), (uint32_t)(index / 4 >> 32),
				(uint32_t)initializer->tensor, (uint32_t)(initializer->tensor >> 32) };
	uint32_t words[4];

	initializer_philox(counter, key, words);
	return words[index % 4];
}

static void a_uniform_element_is_its_own_word(void **state)
{
	struct initializer wide = { INITIALIZER_UNIFORM, -3, 7, UINT64_C(0x89abcdef01234567),
				    UINT64_MAX - 5 };
	uint64_t first = (UINT64_C(1) << 36) + 3;
	float values[100];

	initializer_fill(&wide, first, 100, values);
	for (uint64_t i = 0; i < 100; i++)
		assert_true(values[i] == (float)(-3 + 10 * (word_of(&wide, first + i) / 4294967296.0)));
}

/* Box and Muller with the mathematical library's functions: two correct implementations in fp64 round to
 * different fp32 values once in some hundred million times. */
static void a_normal_element_follows_box_and_muller(void **state)
{
	_cleanup_free_ float *values = allocate_floats(COUNT);
	unsigned differences = 0;

	initializer_fill(&normal, 0, COUNT, values);
	for (uint64_t i = 0; i < COUNT; i++) {
		double u1 = (word_of(&normal, i & ~UINT64_C(1)) + 1.0) / 4294967296.0;
		double angle = 2 * 3.14159265358979323846 * (word_of(&normal, i | 1) / 4294967296.0);
		float expected = (float)(0.02 * (sqrt(-2 * log(u1)) * (i % 2 ? sin(angle) : cos(angle))));

		/* Near its zeros the library's function shows the rounding of the angle, and ours does not.
		 */
		assert_true(fabs((double)values[i] - (double)expected) <=
			    fabs((double)expected) * 1.2e-7 + 1e-17);
		differences += values[i] != expected;
	}
	assert_true(differences <= 2);
}

static void assert_moments(const struct initializer *initializer, double mean, double deviation,
			   double fourth)
{
	_cleanup_free_ float *values = allocate_floats(COUNT);
	double sum = 0, squares = 0, fourths = 0, neighbours = 0;

	initializer_fill(initializer, 0, COUNT, values);
	for (size_t i = 0; i < COUNT; i++) {
		double x = (values[i] - mean) / deviation;

		sum += x;
		squares += x * x;
		fourths += x * x * x * x;
		neighbours += i > 0 ? x * (values[i - 1] - mean) / deviation : 0;
	}
	/* Five standard deviations of each, or more. */
	assert_true(fabs(sum / COUNT) < 0.005);
	assert_true(fabs(neighbours / COUNT) < 0.005);
	assert_true(fabs(squares / COUNT - 1) < 0.0075);
	assert_true(fabs(fourths / COUNT - fourth) < 0.05);
}

static void moments_are_those_of_the_distributions(void **state)
{
	const struct initializer shifted = { INITIALIZER_NORMAL, 3, 0.5, 7, 8 };

	assert_moments(&normal, 0, 0.02, 3);
	assert_moments(&shifted, 3, 0.5, 3);
	assert_moments(&uniform, 0.5, sqrt(4.0 / 12), 1.8);
}

static void assert_pieces(const struct initializer *initializer)
{
	float whole[64], piece[64];

	initializer_fill(initializer, 1000, 64, whole);
	for (size_t first = 0; first < 64; first++)
		for (size_t count = 0; first + count <= 64; count++) {
			initializer_fill(initializer, 1000 + first, count, piece);
			assert_memory_equal(piece, whole + first, count * sizeof(float));
		}
}

static void any_piece_is_the_same(void **state)
{
	assert_pieces(&normal);
	assert_pieces(&uniform);
}

static void assert_differs(const struct initializer *other, uint64_t first)
{
	float values[16], others[16];
	unsigned same = 0;

	initializer_fill(&normal, 0, 16, values);
	initializer_fill(other, first, 16, others);
	for (size_t i = 0; i < 16; i++)
		same += values[i] == others[i];
	assert_true(same <= 1);
}

static void every_bit_of_key_and_counter_counts(void **state)
{
	for (unsigned bit = 0; bit < 64; bit++) {
		struct initializer other = normal;

		other.seed ^= UINT64_C(1) << bit;
		assert_differs(&other, 0);
		other = normal;
		other.tensor ^= UINT64_C(1) << bit;
		assert_differs(&other, 0);
		if (bit >= 2)
			assert_differs(&normal, UINT64_C(1) << bit);
	}
}

static void a_tensor_is_known_by_the_hash_of_its_name(void **state)
{
	assert_true(initializer_tensor("wte.weight") == XXH3_64bits_withSeed("wte.weight", 10, 0));
	assert_true(initializer_tensor("") == XXH3_64bits_withSeed("", 0, 0));
}

static void zeros_and_ones_are_that(void **state)
{
	const struct initializer zeros = { INITIALIZER_ZEROS, 5, 6, 7, 8 },
				 ones = { INITIALIZER_ONES, 5, 6, 7, 8 };
	float values[33];

	initializer_fill(&ones, 5, 33, values);
	for (size_t i = 0; i < 33; i++)
		assert_true(values[i] == 1.0f);
	initializer_fill(&zeros, 5, 33, values);
	for (size_t i = 0; i < 33; i++)
		assert_int_equal(float_bits(values[i]), 0);
}

/* Bits that must never change: they are part of what a seed means. */
static void the_values_of_a_seed_are_fixed(void **state)
{
	static const uint32_t expected[8] = { 0x3b21bffe, 0x3c2f2bd6, 0xbcd8beab, 0xbc766715,
					      0xbc835a99, 0x3cf272e2, 0x3c244c6b, 0xbd45e7dc };
	float values[8];

	initializer_fill(&normal, 0, 8, values);
	assert_memory_equal(values, expected, sizeof(values));
}

/* Also where the counter's upper half begins to count, between two rows and within one. */
static void every_level_gives_the_same_bits(void **state)
{
	static const struct {
		const struct initializer *initializer;
		uint64_t first, hash;
	} cases[] = { { &normal, (UINT64_C(1) << 34) - 1024, UINT64_C(0x5006478fa883ef78) },
		      { &normal, (UINT64_C(1) << 34) - 1100, UINT64_C(0xca7f9a78adbb8915) },
		      { &uniform, (UINT64_C(1) << 34) - 1024, UINT64_C(0x131c1e3af7e7df59) },
		      { &uniform, (UINT64_C(1) << 34) - 1100, UINT64_C(0xccec6ef538dd5cb2) } };
	static float values[256 * INITIALIZER_ROW];

	for (size_t i = 0; i < ARRAY_LENGTH(cases); i++) {
		FOREACH_LEVEL(level)
		{
			for (size_t at = 0; at < ARRAY_LENGTH(values); at += INITIALIZER_ROW)
				initializer_find_kernel(level)(cases[i].initializer,
							       (cases[i].first + at) / 4, values + at);
			assert_true(XXH3_64bits(values, sizeof(values)) == cases[i].hash);
		}
		initializer_fill(cases[i].initializer, cases[i].first, ARRAY_LENGTH(values), values);
		assert_true(XXH3_64bits(values, sizeof(values)) == cases[i].hash);
	}
}

/* Its logarithm is 0. A search has found where there is one. */
static void the_largest_word_gives_the_mean(void **state)
{
	struct initializer with = normal;
	uint64_t block = UINT64_C(5501267591);

	with.a = 1.5;
	assert_int_equal(word_of(&with, 4 * block + 2), UINT32_MAX);
	FOREACH_LEVEL(level)
	{
		float values[INITIALIZER_ROW];

		initializer_find_kernel(level)(&with, block - 1, values);
		assert_true(values[4 + 1] != 1.5f);
		assert_true(values[4 + 2] == 1.5f);
		assert_true(values[4 + 3] == 1.5f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(philox_gives_the_known_answers),
		cmocka_unit_test(a_uniform_element_is_its_own_word),
		cmocka_unit_test(a_normal_element_follows_box_and_muller),
		cmocka_unit_test(moments_are_those_of_the_distributions),
		cmocka_unit_test(any_piece_is_the_same),
		cmocka_unit_test(every_bit_of_key_and_counter_counts),
		cmocka_unit_test(a_tensor_is_known_by_the_hash_of_its_name),
		cmocka_unit_test(zeros_and_ones_are_that),
		cmocka_unit_test(the_values_of_a_seed_are_fixed),
		cmocka_unit_test(every_level_gives_the_same_bits),
		cmocka_unit_test(the_largest_word_gives_the_mean),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
