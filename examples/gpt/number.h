/* The number formats of parameters and gradients, and how they convert. */
#ifndef GPT_NUMBER_H
#define GPT_NUMBER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum number_format { NUMBER_FP32, NUMBER_BF16, NUMBER_FP16 };

static inline const char *number_name(enum number_format format)
{
	return format == NUMBER_BF16 ? "bf16" : format == NUMBER_FP16 ? "fp16" : "fp32";
}

static inline size_t number_size(enum number_format format)
{
	return format == NUMBER_FP32 ? sizeof(float) : sizeof(uint16_t);
}

static inline uint32_t number_bits(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, sizeof(bits));
	return bits;
}

static inline float number_from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static inline float number_from_bf16(uint16_t value)
{
	return number_from_bits((uint32_t)value << 16);
}

/* Half away from zero, as docs/numerics.md asks. A NaN keeps a bit that says so. */
static inline uint16_t number_to_bf16(float value)
{
	uint32_t bits = number_bits(value);
	uint32_t rounded = (bits + 0x8000) >> 16;
	uint32_t nan = bits >> 16 | 0x40;

	return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded);
}

/* 2^-24 is the least fp16; what is subnormal is a multiple of it. */
static inline float number_from_fp16(uint16_t value)
{
	uint32_t sign = (uint32_t)(value & 0x8000) << 16, rest = value & 0x7fff;

	if (rest >= 0x7c00)
		return number_from_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
	if (rest < 0x400)
		return number_from_bits(sign | number_bits((float)rest * 0x1p-24f));
	return number_from_bits(sign | ((rest << 13) + (112U << 23)));
}

/* To nearest even. From 65520 on it is infinite; a NaN keeps a bit that says so. */
static inline uint16_t number_to_fp16(float value)
{
	uint32_t bits = number_bits(value), sign = bits >> 16 & 0x8000;
	float magnitude = number_from_bits(bits & 0x7fffffff);
	uint32_t normal = (bits & 0x7fffffff) - (112U << 23);

	if (magnitude != magnitude)
		return (uint16_t)(sign | 0x7e00);
	if (magnitude >= 65520.0f)
		return (uint16_t)(sign | 0x7c00);
	/* The last bit of 0.5 stands for 2^-24: the sum is rounded there. */
	if (magnitude < 0x1p-14f)
		return (uint16_t)(sign | (number_bits(magnitude + 0.5f) & 0x7ff));
	return (uint16_t)(sign | (normal + 0xfff + (normal >> 13 & 1)) >> 13);
}

static inline float number_from_narrow(uint16_t value, enum number_format format)
{
	return format == NUMBER_BF16 ? number_from_bf16(value) : number_from_fp16(value);
}

static inline uint16_t number_to_narrow(float value, enum number_format format)
{
	return format == NUMBER_BF16 ? number_to_bf16(value) : number_to_fp16(value);
}

static inline float number_load(const void *data, enum number_format format, size_t index)
{
	return format == NUMBER_FP32 ? ((const float *)data)[index]
				     : number_from_narrow(((const uint16_t *)data)[index], format);
}

static inline void number_store(void *data, enum number_format format, size_t index, float value)
{
	if (format == NUMBER_FP32)
		((float *)data)[index] = value;
	else
		((uint16_t *)data)[index] = number_to_narrow(value, format);
}

static inline void *number_at(void *data, enum number_format format, size_t index)
{
	return (char *)data + index * number_size(format);
}

#endif
