/* Random numbers by counter: the n-th of a stream can be had without the ones before it. */
#ifndef GPT_RANDOM_H
#define GPT_RANDOM_H

#include <stdint.h>

/* The finalizer of splitmix64: every bit of the result depends on every bit of the value. */
static inline uint64_t random_mix(uint64_t value)
{
	value += UINT64_C(0x9e3779b97f4a7c15);
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

static inline uint64_t random_at(uint64_t stream, uint64_t counter)
{
	return random_mix(random_mix(stream) ^ counter);
}

/* [0, 1) */
static inline double random_uniform(uint64_t stream, uint64_t counter)
{
	return (double)(random_at(stream, counter) >> 11) * 0x1p-53;
}

/* Nearly normal, with mean 0 and deviation 1: the sum of four uniform numbers. No mathematical library has a
 * say in its bits. */
static inline float random_normal(uint64_t stream, uint64_t counter)
{
	uint64_t word = random_at(stream, counter);
	int64_t sum =
		(int64_t)((word & 0xffff) + (word >> 16 & 0xffff) + (word >> 32 & 0xffff) + (word >> 48));

	return (float)(sum - 2 * 0xffff) * (1.7320508f / 65536.0f);
}

#endif
