/* Functions of one number, for processors and GPUs: from numbers and not from a library, so that they have
 * the same bits everywhere. */
#ifndef GPT_FUNCTIONS_H
#define GPT_FUNCTIONS_H

#include "number.h"

/* e^x to about one unit in the last place; loops over it vectorize. */
static inline float exponential(float x)
{
	const float round_by = 12582912.0f; /* 1.5 · 2^23: adding it rounds to an integer */
	float bounded = x > 88.0f ? 88.0f : x < -87.0f ? -87.0f : x;
	float shifted = bounded * 1.44269504f + round_by;
	float power = shifted - round_by;
	float rest = bounded - power * 0.693359375f + power * 2.12194440e-4f;
	float e = 1.9875691500e-4f;

	e = e * rest + 1.3981999507e-3f;
	e = e * rest + 8.3334519073e-3f;
	e = e * rest + 4.1665795894e-2f;
	e = e * rest + 1.6666665459e-1f;
	e = e * rest + 5.0000001201e-1f;
	e = e * rest * rest + rest + 1.0f;
	return e * number_from_bits((number_bits(shifted) + 127) << 23);
}

/* GELU, by its tangent form: x · sigmoid(2 √(2/π) (x + 0.044715 x³)) */
#define GELU_LINEAR 1.5957691216f /* 2 √(2/π) */
#define GELU_CUBIC (GELU_LINEAR * 0.044715f)

static inline float gelu_of(float x)
{
	float inner = x * (GELU_LINEAR + GELU_CUBIC * x * x);

	return x / (1.0f + exponential(-inner));
}

static inline float gelu_slope(float x)
{
	float square = x * x;
	float sigmoid = 1.0f / (1.0f + exponential(-(x * (GELU_LINEAR + GELU_CUBIC * square))));
	float slope = GELU_LINEAR + 3.0f * GELU_CUBIC * square;

	return sigmoid + x * sigmoid * (1.0f - sigmoid) * slope;
}

#endif
