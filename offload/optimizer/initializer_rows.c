#include "offload/optimizer/initializer_rows.h"

#include <math.h>
#include <string.h>

#include "offload/optimizer/vector.h"

#define BLOCKS INITIALIZER_BLOCKS
#define SIGN UINT64_C(0x8000000000000000)
#define INLINE static inline __attribute__((always_inline))

/* The words of each block, by their number in it. */
struct draws {
	uint32_t word[INITIALIZER_BLOCK][BLOCKS];
};

/* One round of Philox4x32. */
INLINE void mix(words at[INITIALIZER_BLOCK], words key, words other_key)
{
	words high, other_high, low = multiply_wide(at[0], all_words(UINT32_C(0xd2511f53)), &high);
	words other_low = multiply_wide(at[2], all_words(UINT32_C(0xcd9e8d57)), &other_high);

	at[0] = differ(differ(other_high, at[1]), key);
	at[1] = other_low;
	at[2] = differ(differ(high, at[3]), other_key);
	at[3] = low;
}

INLINE void find_words_of_lanes(const struct initializer *initializer, unsigned first, struct draws *draws)
{
	words key = all_words((uint32_t)initializer->seed), step = all_words(UINT32_C(0x9e3779b9));
	words other_key = all_words((uint32_t)(initializer->seed >> 32));
	words other_step = all_words(UINT32_C(0xbb67ae85));
	words at[INITIALIZER_BLOCK] = { load_words(&draws->word[0][first]),
					load_words(&draws->word[1][first]),
					all_words((uint32_t)initializer->tensor),
					all_words((uint32_t)(initializer->tensor >> 32)) };

	for (int round = 0; round < 10; round++) {
		mix(at, key, other_key);
		key = add(key, step);
		other_key = add(other_key, other_step);
	}
	for (unsigned i = 0; i < INITIALIZER_BLOCK; i++)
		store_words(&draws->word[i][first], at[i]);
}

/* Those of initializer_philox(). */
INLINE void find_words(const struct initializer *initializer, uint64_t block, struct draws *ret_draws)
{
	for (unsigned i = 0; i < BLOCKS; i++) {
		ret_draws->word[0][i] = (uint32_t)(block + i);
		ret_draws->word[1][i] = (uint32_t)((block + i) >> 32);
	}
	for (unsigned first = 0; first < BLOCKS; first += VECTOR_LANES)
		find_words_of_lanes(initializer, first, ret_draws);
}

/* Polynomials as docs/numerics.md says: each product and sum rounded, from the last one on. They are written
 * out, since a loop within a loop makes no vectors. */
INLINE double atanh_polynomial(double x)
{
	double sum = 1. / 17 + x * (1. / 19);

	sum = 1. / 13 + x * (1. / 15 + x * sum);
	sum = 1. / 9 + x * (1. / 11 + x * sum);
	sum = 1. / 5 + x * (1. / 7 + x * sum);
	return 1. + x * (1. / 3 + x * sum);
}

INLINE double sine_polynomial(double x)
{
	double sum = 1. / 6227020800. + x * (-1. / 1307674368000.);

	sum = 1. / 362880 + x * (-1. / 39916800 + x * sum);
	sum = 1. / 120 + x * (-1. / 5040 + x * sum);
	return 1. + x * (-1. / 6 + x * sum);
}

INLINE double cosine_polynomial(double x)
{
	double sum = -1. / 87178291200. + x * (1. / 20922789888000.);

	sum = -1. / 3628800 + x * (1. / 479001600. + x * sum);
	sum = -1. / 720 + x * (1. / 40320 + x * sum);
	sum = -1. / 2 + x * (1. / 24 + x * sum);
	return 1. + x * sum;
}

INLINE double double_of(uint64_t bits)
{
	double x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

INLINE uint64_t bits_of_double(double x)
{
	uint64_t bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

/* ln(n / 2^32) for n in 1 … 2^32, which a double holds: its exponent, and its fraction between 1 and 2. */
INLINE double logarithm(double n)
{
	uint64_t bits = bits_of_double(n), fraction = bits & UINT64_C(0x000fffffffffffff);
	/* Above the square root of 2 it is halved, and the exponent is one more. By their bits, since a
	 * comparison of doubles may trap, and makes no vectors. */
	uint64_t is_above = (UINT64_C(0x6a09e667f3bcd) - fraction) >> 63;
	/* A whole number below 2^52, by the bits of that and it. */
	double exponent =
		double_of(((bits >> 52) + is_above) | UINT64_C(0x4330000000000000)) - 0x1p+52 - 1055;
	double f = double_of(fraction | (UINT64_C(0x3ff) - is_above) << 52);
	double s = (f - 1) / (f + 1);

	return exponent * 0x1.62e42fefa39efp-1 + 2 * s * atanh_polynomial(s * s);
}

/* cos and sin of 2π·n / 2^32: the nearest quarter turn, and what is left within an eighth. */
INLINE void turn(uint32_t n, double *ret_cos, double *ret_sin)
{
	uint32_t quarter = (n + (UINT32_C(1) << 29)) >> 30;
	int32_t rest = (int32_t)(n - (quarter << 30));
	double angle = rest * (0x1.921fb54442d18p+2 / 0x1p+32);
	double square = angle * angle;
	double sine = angle * sine_polynomial(square), cosine = cosine_polynomial(square);
	/* Masks, and signs, in the width of a double. */
	uint64_t quarters = quarter, is_odd = -(quarters & 1), is_half = (quarters & 2) << 62;
	uint64_t sine_bits = bits_of_double(sine), cosine_bits = bits_of_double(cosine);

	*ret_cos = double_of(((((sine_bits ^ SIGN) & is_odd) | (cosine_bits & ~is_odd))) ^ is_half);
	*ret_sin = double_of(((cosine_bits & is_odd) | (sine_bits & ~is_odd)) ^ is_half);
}

/* A word without a sign, as a double, by instructions that every level has. */
INLINE double number(uint32_t word)
{
	return (double)(int32_t)(word ^ UINT32_C(0x80000000)) + 0x1p+31;
}

/* Box and Muller: of each two words two values. */
INLINE void fill_pair(const struct initializer *initializer, uint32_t word, uint32_t other,
		      float ret_values[2])
{
	double radius = sqrt(-2 * logarithm(number(word) + 1)), x, y;

	turn(other, &x, &y);
	ret_values[0] = (float)(initializer->a + initializer->b * (radius * x));
	ret_values[1] = (float)(initializer->a + initializer->b * (radius * y));
}

INLINE void fill_normal(const struct initializer *with, const struct draws *draws, float *ret_values)
{
	for (unsigned i = 0; i < BLOCKS; i++) {
		float *values = ret_values + (size_t)INITIALIZER_BLOCK * i;

		fill_pair(with, draws->word[0][i], draws->word[1][i], values);
		fill_pair(with, draws->word[2][i], draws->word[3][i], values + 2);
	}
}

INLINE float uniform(const struct initializer *with, uint32_t word)
{
	return (float)(with->a + (with->b - with->a) * (number(word) * 0x1p-32));
}

INLINE void fill_uniform(const struct initializer *with, const struct draws *draws, float *ret_values)
{
	for (unsigned i = 0; i < BLOCKS; i++) {
		float *values = ret_values + (size_t)INITIALIZER_BLOCK * i;

		values[0] = uniform(with, draws->word[0][i]);
		values[1] = uniform(with, draws->word[1][i]);
		values[2] = uniform(with, draws->word[2][i]);
		values[3] = uniform(with, draws->word[3][i]);
	}
}

/* What it is told is copied: a store might change it, as far as the compiler knows. */
void VECTOR_NAME(initializer_rows)(const struct initializer *initializer, uint64_t block,
				   float ret_values[INITIALIZER_ROW])
{
	const struct initializer with = *initializer;
	struct draws draws;

	find_words(&with, block, &draws);
	if (with.kind == INITIALIZER_NORMAL)
		fill_normal(&with, &draws, ret_values);
	else
		fill_uniform(&with, &draws, ret_values);
}
