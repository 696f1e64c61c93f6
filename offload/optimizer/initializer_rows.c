#include "offload/optimizer/initializer_rows.h"

#include <math.h>
#include <string.h>

#include "offload/optimizer/vector.h"

#define BLOCKS INITIALIZER_BLOCKS
#define ROUNDS 10
#define FRACTION_BITS 52
#define SIGN UINT64_C(0x8000000000000000)
#define INLINE static inline __attribute__((always_inline))

/* The words of each block, by their number in it. Each is the lower half of a number of 64 bits, as wide as a
 * product of two, and as a double; the upper half means nothing. */
struct draws {
	uint64_t word[INITIALIZER_BLOCK][BLOCKS];
};

/* What each round of Philox4x32 mixes in. */
struct keys {
	wides first[ROUNDS], second[ROUNDS];
};

INLINE void find_keys(uint64_t seed, struct keys *ret_keys)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		ret_keys->first[round] = all_wides((uint32_t)seed + round * UINT32_C(0x9e3779b9));
		ret_keys->second[round] = all_wides((uint32_t)(seed >> 32) + round * UINT32_C(0xbb67ae85));
	}
}

INLINE void find_words_of_lanes(const struct keys *keys, uint64_t tensor, unsigned first, struct draws *draws)
{
	wides at[INITIALIZER_BLOCK] = { load_wides(&draws->word[0][first]),
					load_wides(&draws->word[1][first]), all_wides(tensor),
					all_wides(tensor >> 32) };

	for (unsigned round = 0; round < ROUNDS; round++) {
		wides product_0 = multiply_lower_halves(at[0], all_wides(UINT32_C(0xd2511f53)));
		wides product_2 = multiply_lower_halves(at[2], all_wides(UINT32_C(0xcd9e8d57)));

		at[0] = differ_wides(differ_wides(shift_right_wides(product_2, 32), at[1]),
				     keys->first[round]);
		at[1] = product_2;
		at[2] = differ_wides(differ_wides(shift_right_wides(product_0, 32), at[3]),
				     keys->second[round]);
		at[3] = product_0;
	}
	for (unsigned i = 0; i < INITIALIZER_BLOCK; i++)
		store_wides(&draws->word[i][first], at[i]);
}

/* Those of initializer_philox(). */
INLINE void find_words(const struct initializer *initializer, uint64_t block, struct draws *ret_draws)
{
	struct keys keys;

	find_keys(initializer->seed, &keys);
	for (unsigned i = 0; i < BLOCKS; i++) {
		ret_draws->word[0][i] = block + i;
		ret_draws->word[1][i] = (block + i) >> 32;
	}
	for (unsigned first = 0; first < BLOCKS; first += WIDE_LANES)
		find_words_of_lanes(&keys, initializer->tensor, first, ret_draws);
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

/* 2^52 + x, for a whole number x below 2^52: its bits are those of both. A conversion of integers would not
 * be a vector at every level. */
INLINE double plus_2_52(uint64_t x)
{
	return double_of(x | UINT64_C(0x4330000000000000));
}

/* -2 · ln(n / 2^32) for n in 1 … 2^32: n's exponent, and its fraction between 1 and 2, which is halved above
 * the square root of 2, with an exponent of one more. For that a number is added that carries into the
 * exponent from there on, and taken away from the fraction again. The factor is a power of two, and changes
 * no rounding wherever it stands. */
INLINE double squared_radius(double n)
{
	const uint64_t one = UINT64_C(0x3ff) << FRACTION_BITS, mask = (UINT64_C(1) << FRACTION_BITS) - 1;
	const uint64_t root_of_2 = UINT64_C(0x6a09e667f3bcd), carry = mask - root_of_2;
	uint64_t bits = bits_of_double(n) + carry;
	double exponent = plus_2_52(bits >> FRACTION_BITS) - (0x1p+52 + 1023 + 32);
	double f = double_of((bits & mask) + (one - carry));
	double s = (f - 1) / (f + 1);

	return exponent * (-2 * 0x1.62e42fefa39efp-1) + -4 * s * atanh_polynomial(s * s);
}

/* cos and sin of 2π·n / 2^32, n being the lower half: the nearest quarter turn, and what is left within an
 * eighth. */
INLINE void turn(uint64_t n, double *ret_cos, double *ret_sin)
{
	uint64_t moved = n + (UINT64_C(1) << 29);
	/* A mask and a sign: a choice by a condition would not be one of vectors at every level. */
	uint64_t is_odd = -(moved >> 30 & 1), is_half = moved << 32 & SIGN;
	double rest = plus_2_52(moved & ((UINT64_C(1) << 30) - 1)) - (0x1p+52 + 0x1p+29);
	double angle = rest * (0x1.921fb54442d18p+2 / 0x1p+32);
	double square = angle * angle;
	uint64_t sine = bits_of_double(angle * sine_polynomial(square));
	uint64_t cosine = bits_of_double(cosine_polynomial(square));

	*ret_cos = double_of(cosine ^ ((sine ^ SIGN ^ cosine) & is_odd) ^ is_half);
	*ret_sin = double_of(sine ^ ((sine ^ cosine) & is_odd) ^ is_half);
}

INLINE uint64_t lower_half(uint64_t word)
{
	return word & UINT32_MAX;
}

/* Element by element what was found by word. */
INLINE void interleave(float values[INITIALIZER_BLOCK][BLOCKS], float *ret_values)
{
	for (unsigned i = 0; i < BLOCKS; i++, ret_values += INITIALIZER_BLOCK) {
		ret_values[0] = values[0][i];
		ret_values[1] = values[1][i];
		ret_values[2] = values[2][i];
		ret_values[3] = values[3][i];
	}
}

/* Box and Muller: of each two words two values. In two loops, since a processor looks ahead over several
 * turns of a short one. */
INLINE void fill_normal(const struct initializer *with, const struct draws *draws, float *ret_values)
{
	float values[INITIALIZER_BLOCK][BLOCKS];

	for (unsigned pair = 0; pair < INITIALIZER_BLOCK; pair += 2) {
		double squares[BLOCKS];

		for (unsigned i = 0; i < BLOCKS; i++)
			squares[i] =
				squared_radius(plus_2_52(lower_half(draws->word[pair][i])) - (0x1p+52 - 1));
		for (unsigned i = 0; i < BLOCKS; i++) {
			double radius = sqrt(squares[i]), x, y;

			turn(draws->word[pair + 1][i], &x, &y);
			values[pair][i] = (float)(with->a + with->b * (radius * x));
			values[pair + 1][i] = (float)(with->a + with->b * (radius * y));
		}
	}
	interleave(values, ret_values);
}

INLINE void fill_uniform(const struct initializer *with, const struct draws *draws, float *ret_values)
{
	float values[INITIALIZER_BLOCK][BLOCKS];

	for (unsigned word = 0; word < INITIALIZER_BLOCK; word++)
		for (unsigned i = 0; i < BLOCKS; i++) {
			double number = plus_2_52(lower_half(draws->word[word][i])) - 0x1p+52;

			values[word][i] = (float)(with->a + (with->b - with->a) * (number * 0x1p-32));
		}
	interleave(values, ret_values);
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
