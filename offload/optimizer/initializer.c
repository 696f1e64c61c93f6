#include "offload/optimizer/initializer.h"

#include <assert.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "common/cleanup.h"

#define BLOCK 4 /* elements of one Philox counter */

uint64_t initializer_tensor(const char *name)
{
	return XXH3_64bits(name, strlen(name));
}

void initializer_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t ret_words[4])
{
	uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
	uint32_t k0 = key[0], k1 = key[1];

	for (int round = 0; round < 10; round++) {
		uint64_t a = UINT64_C(0xd2511f53) * c0, b = UINT64_C(0xcd9e8d57) * c2;

		c0 = (uint32_t)(b >> 32) ^ c1 ^ k0;
		c1 = (uint32_t)b;
		c2 = (uint32_t)(a >> 32) ^ c3 ^ k1;
		c3 = (uint32_t)a;
		k0 += UINT32_C(0x9e3779b9);
		k1 += UINT32_C(0xbb67ae85);
	}
	memcpy(ret_words, (uint32_t[4]){ c0, c1, c2, c3 }, 4 * sizeof(uint32_t));
}

/* c[0] + x·(c[1] + x·(c[2] + …)), as docs/numerics.md says: each product and sum rounded. */
static inline double polynomial(const double *coefficients, int count, double x)
{
	double sum = coefficients[count - 1];

	for (int i = count - 2; i >= 0; i--)
		sum = coefficients[i] + x * sum;
	return sum;
}

/* ln(n / 2^32) for n in 1 … 2^32. */
static double logarithm(uint64_t n)
{
	static const double atanh_terms[] = { 1.,      1. / 3,	1. / 5,	 1. / 7,  1. / 9,
					      1. / 11, 1. / 13, 1. / 15, 1. / 17, 1. / 19 };
	int exponent = 63 - __builtin_clzll(n);
	double f = (double)n / (double)(UINT64_C(1) << exponent);
	double s;

	if (f > 0x1.6a09e667f3bcdp+0) {
		f = f / 2;
		exponent++;
	}
	s = (f - 1) / (f + 1);
	return (exponent - 32) * 0x1.62e42fefa39efp-1 +
	       2 * s * polynomial(atanh_terms, ARRAY_LENGTH(atanh_terms), s * s);
}

/* cos and sin of 2π·n / 2^32: the nearest quarter turn, and what is left within an eighth. */
static void turn(uint32_t n, double *ret_cos, double *ret_sin)
{
	static const double sin_terms[] = {
		1.,	     -1. / 6,	     1. / 120,	       -1. / 5040,
		1. / 362880, -1. / 39916800, 1. / 6227020800., -1. / 1307674368000.
	};
	static const double cos_terms[] = { 1.,
					    -1. / 2,
					    1. / 24,
					    -1. / 720,
					    1. / 40320,
					    -1. / 3628800,
					    1. / 479001600.,
					    -1. / 87178291200.,
					    1. / 20922789888000. };
	uint32_t quarter = (n + (UINT32_C(1) << 29)) >> 30;
	int32_t rest = (int32_t)(n - (quarter << 30));
	double angle = rest * (0x1.921fb54442d18p+2 / 0x1p+32);
	double square = angle * angle;
	double sine = angle * polynomial(sin_terms, ARRAY_LENGTH(sin_terms), square);
	double cosine = polynomial(cos_terms, ARRAY_LENGTH(cos_terms), square);
	double x = quarter & 1 ? -sine : cosine, y = quarter & 1 ? cosine : sine;

	*ret_cos = quarter & 2 ? -x : x;
	*ret_sin = quarter & 2 ? -y : y;
}

static void fill_normal(const struct initializer *initializer, const uint32_t words[BLOCK], float *ret_values)
{
	for (int i = 0; i < BLOCK; i += 2) {
		double radius = sqrt(-2 * logarithm((uint64_t)words[i] + 1));
		double x, y;

		turn(words[i + 1], &x, &y);
		ret_values[i] = (float)(initializer->a + initializer->b * (radius * x));
		ret_values[i + 1] = (float)(initializer->a + initializer->b * (radius * y));
	}
}

static void fill_uniform(const struct initializer *initializer, const uint32_t words[BLOCK],
			 float *ret_values)
{
	for (int i = 0; i < BLOCK; i++)
		ret_values[i] = (float)(initializer->a +
					(initializer->b - initializer->a) * ((double)words[i] / 0x1p+32));
}

static void fill_block(const struct initializer *initializer, uint64_t block, float *ret_values)
{
	uint32_t key[2] = { (uint32_t)initializer->seed, (uint32_t)(initializer->seed >> 32) };
	uint32_t counter[4] = { (uint32_t)block, (uint32_t)(block >> 32), (uint32_t)initializer->tensor,
				(uint32_t)(initializer->tensor >> 32) };
	uint32_t words[BLOCK];

	initializer_philox(counter, key, words);
	if (initializer->kind == INITIALIZER_NORMAL)
		fill_normal(initializer, words, ret_values);
	else
		fill_uniform(initializer, words, ret_values);
}

static void fill_random(const struct initializer *initializer, uint64_t first, size_t count,
			float *ret_values)
{
	while (count > 0) {
		size_t skipped = first % BLOCK;
		size_t wanted = BLOCK - skipped < count ? BLOCK - skipped : count;
		float values[BLOCK];

		fill_block(initializer, first / BLOCK, values);
		memcpy(ret_values, values + skipped, wanted * sizeof(float));
		first += wanted;
		ret_values += wanted;
		count -= wanted;
	}
}

void initializer_fill(const struct initializer *initializer, uint64_t first, size_t count, float *ret_values)
{
	float value = initializer->kind == INITIALIZER_ONES ? 1.0f : 0.0f;

	if (initializer->kind == INITIALIZER_NORMAL || initializer->kind == INITIALIZER_UNIFORM) {
		fill_random(initializer, first, count, ret_values);
		return;
	}
	for (size_t i = 0; i < count; i++)
		ret_values[i] = value;
}
