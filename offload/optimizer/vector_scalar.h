/* offload/optimizer/vector.h without vector instructions: of processors, and of GPUs, whose threads have an
 * element each. So this is C++, too, and so are the headers of the kernels. */
#ifndef TIERD_OFFLOAD_VECTOR_SCALAR_H
#define TIERD_OFFLOAD_VECTOR_SCALAR_H

#include <assert.h>
#include <float.h>
#include <math.h>

#include "common/bfloat16.h"
#include "common/float16.h"

static_assert(FLT_EVAL_METHOD == 0, "fp32 arithmetic must round to fp32");

#define VECTOR_LEVEL scalar
#define VECTOR_LANES 1
#define WIDE_LANES 1

typedef float vector;
typedef uint32_t words;
typedef uint64_t wides;

static inline vector all(float x)
{
	return x;
}

static inline vector load(const float *from)
{
	return *from;
}

static inline void store(float *to, vector x)
{
	*to = x;
}

static inline vector multiply(vector a, vector b)
{
	return a * b;
}

static inline vector divide(vector a, vector b)
{
	return a / b;
}

static inline vector square_root(vector x)
{
	return sqrtf(x);
}

static inline vector fused(vector a, vector b, vector c)
{
	return fmaf(a, b, c);
}

static inline vector fused_negative(vector a, vector b, vector c)
{
	return fmaf(-a, b, c);
}

static inline vector sign(vector x)
{
	return x > 0 ? 1 : x < 0 ? -1 : x;
}

static inline vector join(const uint16_t *high, const int16_t *low)
{
	return bfloat16_join(*high, *low);
}

static inline words carry_half(vector x)
{
	return isnan(x) ? float_bits(x) : float_bits(x) + 0x8000;
}

static inline void split(vector x, uint16_t *ret_high, int16_t *ret_low)
{
	*ret_high = bfloat16_from_float(x);
	*ret_low = bfloat16_remainder(x);
}

static inline void store_fp16(uint16_t *to, vector x)
{
	*to = float16_from_float(x);
}

static inline words bits_of(vector x)
{
	return float_bits(x);
}

static inline vector from_bits(words x)
{
	return float_from_bits(x);
}

static inline words all_words(uint32_t x)
{
	return x;
}

static inline words lanes(void)
{
	return 0;
}

static inline words add(words a, words b)
{
	return a + b;
}

static inline words multiply_low(words a, words b)
{
	return a * b;
}

static inline words both(words a, words b)
{
	return a & b;
}

static inline words either(words a, words b)
{
	return a | b;
}

static inline words differ(words a, words b)
{
	return a ^ b;
}

static inline words shift_left(words x, unsigned places)
{
	return x << places;
}

static inline words shift_right(words x, unsigned places)
{
	return x >> places;
}

static inline words greatest(words a, words b)
{
	return a > b ? a : b;
}

static inline words add_where_less(words x, words y, words a, words b)
{
	return a < b ? x + y : x;
}

static inline uint32_t greatest_lane(words x)
{
	return x;
}

static inline words greatest_where(words x, words y, words z)
{
	return z > 0 ? greatest(x, y) : x;
}

static inline words load_bytes(const uint8_t *from)
{
	return (words)*from << 24;
}

static inline words load_halves(const uint16_t *from)
{
	return *from;
}

static inline void store_halves(uint16_t *to, words x)
{
	*to = (uint16_t)x;
}

static inline words load_pairs(const void *from)
{
	const uint16_t *halves = (const uint16_t *)from;

	return halves[0] | (words)halves[1] << 16;
}

static inline void store_pairs(void *to, words x)
{
	uint16_t *halves = (uint16_t *)to;

	halves[0] = (uint16_t)x;
	halves[1] = (uint16_t)(x >> 16);
}

static inline words blend_halves(words lower, words upper)
{
	return (lower & 0xffff) | (upper & 0xffff0000);
}

static inline words borrow_halves(words x, words y)
{
	return blend_halves(x - (y >> 15 & 1), x - (y >> 31 << 16));
}

static inline void load_apart(const float *from, vector *ret_even, vector *ret_odd)
{
	*ret_even = from[0];
	*ret_odd = from[1];
}

static inline words pack_uppers(words x, words y)
{
	return x >> 16;
}

static inline words pack_signs(words x, words y)
{
	return x >> 16;
}

static inline words all_halves(uint16_t x)
{
	return x;
}

static inline words subtract_halves(words a, words b)
{
	return (uint16_t)(a - b);
}

static inline words least_halves(words a, words b)
{
	return a < b ? a : b;
}

static inline words shift_right_halves(words x, unsigned places)
{
	return x >> places;
}

static inline void store_packed(uint8_t *to, words x)
{
	*to = x < 255 ? (uint8_t)x : 255;
}

static inline wides all_wides(uint64_t x)
{
	return x;
}

static inline wides load_wides(const uint64_t *from)
{
	return *from;
}

static inline void store_wides(uint64_t *to, wides x)
{
	*to = x;
}

static inline wides differ_wides(wides a, wides b)
{
	return a ^ b;
}

static inline wides shift_right_wides(wides x, unsigned places)
{
	return x >> places;
}

static inline wides multiply_lower_halves(wides a, wides b)
{
	return (a & UINT32_MAX) * (b & UINT32_MAX);
}

#endif
