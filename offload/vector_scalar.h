/* offload/vector.h without vector instructions. */
#ifndef TIERD_OFFLOAD_VECTOR_SCALAR_H
#define TIERD_OFFLOAD_VECTOR_SCALAR_H

#include <float.h>
#include <math.h>

#include "common/float16.h"
#include "offload/noise.h"

_Static_assert(FLT_EVAL_METHOD == 0, "fp32 arithmetic must round to fp32");

#define VECTOR_LEVEL scalar
#define VECTOR_LANES 1

typedef float vector;
typedef uint32_t words;

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

static inline void split(vector x, uint16_t *ret_high, int16_t *ret_low)
{
	*ret_high = bfloat16_from_float(x);
	*ret_low = bfloat16_remainder(x);
}

static inline void store_fp16(uint16_t *to, vector x)
{
	*to = float16_from_float(x);
}

static inline vector load_bf16(const uint16_t *from)
{
	return bfloat16_to_float(*from);
}

static inline words noise_at(uint64_t number, const uint32_t keys[2])
{
	return noise_bits(number, keys);
}

static inline void store_noisy(uint16_t *to, vector x, words noise, unsigned slot)
{
	*to = noise_round(x, slot == 0 ? noise : noise >> 16);
}

#endif
