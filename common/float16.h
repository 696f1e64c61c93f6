/* fp16: IEEE 754 binary16, rounded to nearest even; what is too large becomes infinite. */
#ifndef TIERD_COMMON_FLOAT16_H
#define TIERD_COMMON_FLOAT16_H

#include "common/bfloat16.h"

/* Of a NaN, a quiet one. */
static inline float float16_to_float(uint16_t value)
{
	uint32_t sign = (uint32_t)(value & 0x8000) << 16, exponent = value >> 10 & 0x1f;
	uint32_t mantissa = value & 0x3ff;

	if (exponent == 0)
		return float_from_bits(sign | float_bits((float)mantissa * 0x1p-24f));
	if (exponent == 0x1f)
		return float_from_bits(sign | 0x7f800000 | (mantissa ? 0x400000 : 0) | mantissa << 13);
	return float_from_bits(sign | (exponent + 112) << 23 | mantissa << 13);
}

static inline uint16_t float16_from_float(float value)
{
	uint32_t bits = float_bits(value), magnitude = bits & 0x7fffffff;
	uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);

	if (magnitude > 0x7f800000)
		return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
	if (magnitude >= 0x477ff000) /* 65520: half way from the largest to what would follow */
		return sign | 0x7c00;
	/* Subnormal, in units of 2^-24: those of an fp32 that begins at a half, so that its addition rounds.
	 */
	if (magnitude < 0x38800000)
		return (uint16_t)(sign | (float_bits(float_from_bits(magnitude) + 0.5f) - float_bits(0.5f)));
	magnitude += 0xfff + (magnitude >> 13 & 1);
	return (uint16_t)(sign | ((magnitude >> 13) - (112 << 10)));
}

#endif
