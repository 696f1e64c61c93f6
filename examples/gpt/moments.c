#include "moments.h"

#include <limits.h>
#include <math.h>
#include <string.h>
#include <xxhash.h>

#include "number.h"

/* Philox4x32 of ten rounds; the first two words. */
static struct moment_keys philox(uint32_t counter[4], uint32_t key[2])
{
	for (int round = 0; round < 10; round++) {
		uint64_t even = UINT64_C(0xd2511f53) * counter[0], odd = UINT64_C(0xcd9e8d57) * counter[2];

		counter[0] = (uint32_t)(odd >> 32) ^ counter[1] ^ key[0];
		counter[1] = (uint32_t)odd;
		counter[2] = (uint32_t)(even >> 32) ^ counter[3] ^ key[1];
		counter[3] = (uint32_t)even;
		key[0] += UINT32_C(0x9e3779b9);
		key[1] += UINT32_C(0xbb67ae85);
	}
	return (struct moment_keys){ counter[0], counter[1] };
}

struct moment_keys moment_keys(uint64_t seed, const char *tensor, uint64_t update)
{
	uint64_t name = XXH3_64bits(tensor, strlen(tensor));
	uint32_t counter[4] = { (uint32_t)update, (uint32_t)(update >> 32), (uint32_t)name,
				(uint32_t)(name >> 32) };
	uint32_t key[2] = { (uint32_t)seed, ~(uint32_t)(seed >> 32) };

	return philox(counter, key);
}

static uint32_t noise(struct moment_keys keys, uint64_t element)
{
	uint32_t n = (uint32_t)element + keys.first;

	n ^= n >> 16;
	n = n * UINT32_C(0x7feb352d) ^ keys.second ^ (uint32_t)(element >> 32) * UINT32_C(0x9e3779b1);
	n ^= n >> 15;
	n *= UINT32_C(0x846ca68b);
	return n ^ n >> 16;
}

static float round_one(float value, uint32_t noise)
{
	float rounded = number_from_bits((number_bits(value) + noise) & UINT32_C(0xffff0000));

	if (!isfinite(value))
		return value;
	return isfinite(rounded) ? rounded : copysignf(0x1.fep127f, value);
}

void moments_round(struct moment_keys keys, unsigned slot, uint64_t first, size_t count, float *values)
{
	for (size_t i = 0; i < count; i++) {
		uint32_t bits = noise(keys, first + i);

		values[i] = round_one(values[i], slot == 0 ? bits & 0xffff : bits >> 16);
	}
}

/* ---- 8 bits ---- */

#define BLOCK 256

/* Codes count eighths of powers of two, from this one on. */
struct code {
	int lowest, most;
	float offset;
};

static const struct code codes[] = { { -15, 127, 0x1p-15f }, { -31, 255, 0x1p-31f } };

/* Its power of two; INT_MIN: all is too small to be told from zero. */
static int exponent_of_block(const struct code *code, size_t count, const float *values)
{
	double most = 0;
	int exponent;

	for (size_t i = 0; i < count; i++)
		if (fabs((double)values[i]) > most)
			most = fabs((double)values[i]);
	frexp(most, &exponent);
	/* A code stands for less than a power of two, by the offset, which a float has room for. */
	if (code->lowest > -24 && most >= ldexp(1 - (double)code->offset, exponent))
		exponent++;
	return exponent > -126 ? exponent - 1 : INT_MIN;
}

static float code_one(const struct code *code, int exponent, float value, uint32_t chance)
{
	float sum = ldexpf(fabsf(value), -exponent) + code->offset;
	int power, number;
	double mantissa = frexp((double)sum, &power);

	number = (int)floor(8 * (power - 1 - code->lowest) + 8 * (2 * mantissa - 1) + chance / 1048576.0);
	if (number > code->most)
		number = code->most;
	if (code->most > 127 && number == 0 && value > 0)
		number = 1;
	sum = ldexpf(1 + (float)(number % 8) / 8, code->lowest + number / 8) - code->offset;
	return copysignf(ldexpf(sum, exponent), value);
}

static void code_block(struct moment_keys keys, unsigned slot, uint64_t first, size_t count, float *values)
{
	const struct code *code = &codes[slot];
	int exponent = exponent_of_block(code, count, values);

	for (size_t i = 0; i < count; i++) {
		uint32_t bits = noise(keys, first + i);

		values[i] = exponent == INT_MIN ? copysignf(0, values[i])
						: code_one(code, exponent, values[i],
							   slot == 0 ? bits & 0xfffff : bits >> 12);
	}
}

void moments_code(struct moment_keys keys, unsigned slot, uint64_t first, size_t count, float *values)
{
	for (size_t at = 0; at < count; at += BLOCK)
		code_block(keys, slot, first + at, count - at < BLOCK ? count - at : BLOCK, values + at);
}
