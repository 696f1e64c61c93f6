/* Bits: a counter's hash, bf16 and fp16, in the test's own words. */
#ifndef TIERD_TESTS_MATRIX_BITS_H
#define TIERD_TESTS_MATRIX_BITS_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "client/tierd.h"

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

/* fp16, by its definition: 2^exponent times a whole number of at most eleven bits. */
static inline float bits_half_value(uint16_t half)
{
	int exponent = half >> 10 & 31;
	double value = exponent == 0 ? (half & 1023) : (half & 1023) + 1024;

	value *= (double)(1U << (exponent == 0 ? 1 : exponent)) * 0x1p-25;
	return (float)(half & 0x8000 ? -value : value);
}

/* 2^exponent, of a double's normal ones. */
static inline double bits_power(int exponent)
{
	uint64_t bits = (uint64_t)(1023 + exponent) << 52;
	double power;

	memcpy(&power, &bits, sizeof(power));
	return power;
}

/* Where frexp finds it. Every float that is not 0 is a normal double. */
static inline int bits_exponent(double magnitude)
{
	uint64_t bits;

	memcpy(&bits, &magnitude, sizeof(bits));
	return (int)(bits >> 52) - 1022;
}

/* To the nearest, of two the even one (as rint does); no NaN comes here. It is asked a million
 * times for each reference, so nothing but rint is called. */
static inline uint16_t bits_half(float value)
{
	uint16_t sign = bits_of(value) >> 31 ? 0x8000 : 0;
	double magnitude = fabs((double)value), whole;
	int exponent = bits_exponent(magnitude);

	if (exponent > 16)
		return sign | 0x7c00;
	if (exponent < -13)
		exponent = -13;
	whole = rint(magnitude * bits_power(11 - exponent));
	if (whole * bits_power(exponent - 11) > 65504.0)
		return sign | 0x7c00;
	if (whole < 1024.0)
		return sign | (uint16_t)whole;
	/* 2048 is the first of the next exponent: the sum says so by itself. */
	return sign | (uint16_t)(((unsigned)(exponent + 13) << 10) + (unsigned)whole);
}

/* Half away from zero; no NaN comes here. */
static inline uint16_t bits_bfloat16(float value)
{
	return (uint16_t)((bits_of(value) + 0x8000U) >> 16);
}

/* Any byte comes from the values that ranks write, and comes back as the value that it came from. */
static inline uint8_t bits_byte(float value)
{
	return (uint8_t)(int)floorf(value * 0x1p10f);
}

static inline float bits_byte_value(uint16_t byte)
{
	return (float)(int8_t)byte * 0x1p-10f;
}

static inline uint16_t bits_narrow(uint32_t format, float value)
{
	if (format == TIERD_BYTES)
		return bits_byte(value);
	return format == TIERD_FP16 ? bits_half(value) : bits_bfloat16(value);
}

static inline float bits_widen(uint32_t format, uint16_t value)
{
	if (format == TIERD_BYTES)
		return bits_byte_value(value);
	return format == TIERD_FP16 ? bits_half_value(value) : bits_float((uint32_t)value << 16);
}

/* Into an array of the format. */
static inline void bits_put(uint32_t format, void *values, uint64_t index, float value)
{
	if (format == TIERD_FP32)
		((float *)values)[index] = value;
	else if (format == TIERD_BYTES)
		((uint8_t *)values)[index] = (uint8_t)bits_narrow(format, value);
	else
		((uint16_t *)values)[index] = bits_narrow(format, value);
}

#endif
