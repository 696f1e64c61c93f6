/* bf16: the upper half of an fp32, rounded half away from zero. */
#ifndef TIERD_COMMON_BFLOAT16_H
#define TIERD_COMMON_BFLOAT16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float float_from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline float bfloat16_to_float(uint16_t value)
{
	return float_from_bits((uint32_t)value << 16);
}

/* Half away from zero, and not to even: only so does the remainder that a split master
 * keeps (value minus its bf16, as integers) fit in 16 signed bits. A NaN stays one. */
static inline uint16_t bfloat16_from_float(float value)
{
	uint32_t bits = float_bits(value);

	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x8000) >> 16);
}

/* What a split master keeps beside bfloat16_from_float(): the bf16 has no lower half, so the
 * difference is the value's own. */
static inline int16_t bfloat16_remainder(float value)
{
	return (int16_t)(uint16_t)float_bits(value);
}

/* The value of a split master, exactly; of a NaN, a NaN. */
static inline float bfloat16_join(uint16_t value, int16_t remainder)
{
	return float_from_bits(((uint32_t)value << 16) + (uint32_t)(int32_t)remainder);
}

#endif
