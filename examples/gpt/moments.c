#include "moments.h"

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
