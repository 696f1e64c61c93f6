/* Noise for stochastic rounding, by counter: docs/numerics.md, "Moments". */
#ifndef TIERD_OFFLOAD_NOISE_H
#define TIERD_OFFLOAD_NOISE_H

#include "common/bfloat16.h"

#define NOISE_FIRST_FACTOR UINT32_C(0x7feb352d)
#define NOISE_SECOND_FACTOR UINT32_C(0x846ca68b)

/* The second key of an element: what 32 bits of its number leave out is mixed into it. */
static inline uint32_t noise_second_key(uint64_t number, const uint32_t keys[2])
{
	return keys[1] ^ (uint32_t)(number >> 32) * UINT32_C(0x9e3779b1);
}

/* A finalizer of hash tables, which spreads each bit over all, with a key before it and one in between. */
static inline uint32_t noise_bits(uint64_t number, const uint32_t keys[2])
{
	uint32_t x = (uint32_t)number + keys[0];

	x = (x ^ x >> 16) * NOISE_FIRST_FACTOR ^ noise_second_key(number, keys);
	x = (x ^ x >> 15) * NOISE_SECOND_FACTOR;
	return x ^ x >> 16;
}

/* Adds the noise's lower 16 bits below those that are kept, and cuts. What is finite stays finite, and a
 * quiet NaN one; arithmetic gives no other. */
static inline uint16_t noise_round(float value, uint32_t noise)
{
	const uint32_t largest = 0x7f7fffff;
	uint32_t bits = float_bits(value), magnitude = bits & 0x7fffffff;
	uint32_t limit = magnitude > largest ? magnitude : largest;
	uint32_t rounded = magnitude + (noise & 0xffff);

	if (rounded > limit)
		rounded = limit;
	return (uint16_t)((rounded | (bits & UINT32_C(0x80000000))) >> 16);
}

#endif
