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

/* One in four: zeros, infinities, a NaN, denormals, extremes, ties of bf16 and of fp16; else any bits at all,
 * or ordinary. */
static inline float random_any(void)
{
	static const uint32_t special[] = {
		0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff,
		0x7f800001, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x7f7fffff,
		0xff7fffff, 0x3f808000, 0xbf808000, 0x3f818000, 0x3f807fff, 0x3f7fffff,
		0x00008000, 0x7f7f8000, 0x5f800000, 0x1f800000, 0x477fe000, 0x477fefff,
		0x477ff000, 0xc77ff000, 0x33000000, 0x33000001, 0x33800000, 0x387fe000,
		0x387ff000, 0x387fffff, 0x38800000, 0xb87fd000, 0x3f801000, 0x3f803000,
	};
	uint32_t kind = random_bits() % 4;

	if (kind == 0)
		return float_from_bits(special[random_bits() % ARRAY_LENGTH(special)]);
	if (kind == 1)
		return float_from_bits(random_bits());
	return random_ordinary(2);
}

/* What an fp16 stands for, by the definition. */
static inline double half_value(uint16_t half)
{
	int exponent = half >> 10 & 0x1f, mantissa = half & 0x3ff;
	double value = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);

	if (exponent == 0x1f)
		value = mantissa ? NAN : INFINITY;
	return half & 0x8000 ? -value : value;
}

/* The fp16 nearest to a value that is a number, looked for among all of them; of two equally near ones the
 * even one. What is half way to 65536 or beyond is infinite. */
static inline uint16_t nearest_half(double value)
{
	uint16_t low = 0, high = 0x7c00, sign = signbit(value) ? 0x8000 : 0;
	double magnitude = fabs(value);

	/* 0x7c00 stands for 65536 here, the next of the row. */
	while (high - low > 1) {
		uint16_t middle = (uint16_t)((low + high) / 2);

		if (half_value(middle) <= magnitude)
			low = middle;
		else
			high = middle;
	}
	double below = magnitude - half_value(low);
	double above = (high == 0x7c00 ? 65536.0 : half_value(high)) - magnitude;

	return sign | (below < above || (below == above && low % 2 == 0) ? low : high);
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
