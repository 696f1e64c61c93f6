/* What the tests of numeric kernels share: every level of this machine, values of every kind, comparison by
 * bits. */
#ifndef TIERD_TESTS_UNIT_KERNEL_SUPPORT_H
#define TIERD_TESTS_UNIT_KERNEL_SUPPORT_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "common/bfloat16.h"
#include "common/cleanup.h"
#include "common/simd.h"

/* Tails of every length, and sizes that fill several blocks. */
static const size_t kernel_counts[] = {
	0,  1,	2,  3,	4,  5,	6,  7,	8,  9,	10, 11, 12, 13, 14,  15,   16,	 17,   18,   19,    20,
	21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35,  36,   37,	 38,   39,   40,    41,
	42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56,  57,   58,	 59,   60,   61,    62,
	63, 64, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 255, 1023, 1024, 1025, 4096, 65535,
};

#define FOREACH_LEVEL(level) for (enum simd_level level = SIMD_SCALAR; level <= simd_level(); level++)

static inline uint32_t random_bits(void)
{
	static uint64_t state = UINT64_C(0x9e3779b97f4a7c15);

	state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(state >> 32);
}

static inline float random_ordinary(float scale)
{
	return scale * (float)((double)(int32_t)random_bits() / 0x1p31);
}

/* One in four: zeros, infinities, a NaN, denormals, extremes, ties of bf16; else any bits at all, or
 * ordinary. */
static inline float random_any(void)
{
	static const uint32_t special[] = {
		0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff,
		0x7f800001, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff,
		0xff7fffff, 0x3f808000, 0xbf808000, 0x3f818000, 0x3f807fff, 0x3f7fffff,
		0x00008000, 0x7f7f8000, 0x5f800000, 0x1f800000,
	};
	uint32_t kind = random_bits() % 4;

	if (kind == 0)
		return float_from_bits(special[random_bits() % ARRAY_LENGTH(special)]);
	if (kind == 1)
		return float_from_bits(random_bits());
	return random_ordinary(2);
}

/* Equal bits, or both not a number: payloads may differ. */
static inline bool is_same(float a, float b)
{
	return float_bits(a) == float_bits(b) || (isnan(a) && isnan(b));
}

/* Exactly as long as asked for, so that a sanitizer sees an access beyond. */
static inline void *allocate(size_t length)
{
	void *place = malloc(length > 0 ? length : 1);

	if (!place)
		abort();
	return place;
}

static inline float *allocate_floats(size_t count)
{
	return allocate(count * sizeof(float));
}

#endif
