#include "philox.h"

#include <math.h>
#include <string.h>
#include <xxhash.h>

void philox_init(struct philox *philox, uint64_t seed, const char *name)
{
	*philox = (struct philox){ seed, XXH3_64bits(name, strlen(name)) };
}

static void generate(const struct philox *philox, uint64_t counter, uint32_t words[4])
{
	uint32_t key[2] = { (uint32_t)philox->seed, (uint32_t)(philox->seed >> 32) };
	uint32_t x[4] = { (uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)philox->name,
			  (uint32_t)(philox->name >> 32) };

	for (int round = 0; round < 10; round++) {
		uint64_t left = (uint64_t)0xd2511f53 * x[0], right = (uint64_t)0xcd9e8d57 * x[2];
		uint32_t next[4] = { (uint32_t)(right >> 32) ^ x[1] ^ key[0], (uint32_t)right,
				     (uint32_t)(left >> 32) ^ x[3] ^ key[1], (uint32_t)left };

		memcpy(x, next, sizeof(x));
		key[0] += 0x9e3779b9;
		key[1] += 0xbb67ae85;
	}
	memcpy(words, x, sizeof(x));
}

float philox_uniform(const struct philox *philox, uint64_t element, double low, double high)
{
	uint32_t words[4];

	generate(philox, element / 4, words);
	return (float)(low + (high - low) * ((double)words[element % 4] / 4294967296.0));
}

/* c_0 + x·(c_1 + x·(…)). */
static double polynomial(const double *coefficients, int count, double x)
{
	double value = coefficients[count - 1];

	for (int i = count - 2; i >= 0; i--)
		value = coefficients[i] + x * value;
	return value;
}

/* ln(n / 2^32), n in 1 … 2^32. */
static double logarithm(uint64_t n)
{
	static const double series[] = { 1.0,	     1.0 / 3.0,	 1.0 / 5.0,  1.0 / 7.0,	 1.0 / 9.0,
					 1.0 / 11.0, 1.0 / 13.0, 1.0 / 15.0, 1.0 / 17.0, 1.0 / 19.0 };
	int exponent;
	double fraction = 2.0 * frexp((double)n, &exponent);

	exponent--;
	if (fraction > 1.4142135623730951) {
		fraction /= 2.0;
		exponent++;
	}
	double s = (fraction - 1.0) / (fraction + 1.0);

	return (double)(exponent - 32) * 0.6931471805599453 + (2.0 * s) * polynomial(series, 10, s * s);
}

/* cos(2π·n / 2^32), or the sine. */
static double trigonometric(uint32_t n, int is_sine)
{
	static const double sines[] = { 1.0,
					-1.0 / 6.0,
					1.0 / 120.0,
					-1.0 / 5040.0,
					1.0 / 362880.0,
					-1.0 / 39916800.0,
					1.0 / 6227020800.0,
					-1.0 / 1307674368000.0 };
	static const double cosines[] = { 1.0,
					  -1.0 / 2.0,
					  1.0 / 24.0,
					  -1.0 / 720.0,
					  1.0 / 40320.0,
					  -1.0 / 3628800.0,
					  1.0 / 479001600.0,
					  -1.0 / 87178291200.0,
					  1.0 / 20922789888000.0 };
	unsigned quarter = (unsigned)(((uint64_t)n + (1U << 29)) >> 30) % 4;
	double x = (double)(int32_t)(n - (quarter << 30)) * (6.283185307179586 / 4294967296.0);
	double y = x * x, sine = x * polynomial(sines, 8, y), cosine = polynomial(cosines, 9, y);
	const double cosine_of[] = { cosine, -sine, -cosine, sine };
	const double sine_of[] = { sine, cosine, -sine, -cosine };

	return is_sine ? sine_of[quarter] : cosine_of[quarter];
}

float philox_normal(const struct philox *philox, uint64_t element, double mean, double deviation)
{
	uint32_t words[4];

	generate(philox, element / 4, words);
	const uint32_t *pair = &words[element % 4 / 2 * 2];
	double radius = sqrt(-2.0 * logarithm((uint64_t)pair[0] + 1));

	return (float)(mean + deviation * (radius * trigonometric(pair[1], element % 2)));
}
