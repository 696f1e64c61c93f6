/* The two number formats of parameters and gradients, and how they convert. */
#ifndef GPT_NUMBER_H
#define GPT_NUMBER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum number_format { NUMBER_FP32, NUMBER_BF16 };

static inline size_t number_size(enum number_format format)
{
	return format == NUMBER_BF16 ? sizeof(uint16_t) : sizeof(float);
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

static inline float number_load(const void *data, enum number_format format, size_t index)
{
	return format == NUMBER_BF16 ? number_from_bf16(((const uint16_t *)data)[index])
				     : ((const float *)data)[index];
}

static inline void number_store(void *data, enum number_format format, size_t index, float value)
{
	if (format == NUMBER_BF16)
		((uint16_t *)data)[index] = number_to_bf16(value);
	else
		((float *)data)[index] = value;
}

static inline void *number_at(void *data, enum number_format format, size_t index)
{
	return (char *)data + index * number_size(format);
}

#endif
