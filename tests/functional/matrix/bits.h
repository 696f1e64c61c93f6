/* Bits: a counter's hash, and bf16, in the test's own words. */
#ifndef TIERD_TESTS_MATRIX_BITS_H
#define TIERD_TESTS_MATRIX_BITS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t bits_mix(uint32_t x)
{
	x = (x ^ (x >> 16)) * 0x7feb352dU;
	x = (x ^ (x >> 15)) * 0x846ca68bU;
	return x ^ (x >> 16);
}

static inline uint32_t bits_hash(const uint32_t *words, unsigned count)
{
	uint32_t hash = 0x2545f491U;

	for (unsigned i = 0; i < count; i++)
		hash = bits_mix(hash ^ (words[i] * 0x9e3779b1U + i));
	return hash;
}
#define BITS_HASH(...)                                                                                       \
	bits_hash((const uint32_t[]){ __VA_ARGS__ }, sizeof((uint32_t[]){ __VA_ARGS__ }) / sizeof(uint32_t))

static inline uint32_t bits_of(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float bits_float(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* Half away from zero; no NaN comes here. */
static inline uint16_t bits_bfloat16(float value)
{
	return (uint16_t)((bits_of(value) + 0x8000U) >> 16);
}

#endif
