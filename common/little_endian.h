/* Numbers as bytes, the low one first: what leaves this machine, or its memory, looks the same everywhere. */
#ifndef TIERD_COMMON_LITTLE_ENDIAN_H
#define TIERD_COMMON_LITTLE_ENDIAN_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline uint16_t get16(const uint8_t *bytes)
{
	uint16_t value;

	memcpy(&value, bytes, sizeof(value));
	return le16toh(value);
}

static inline uint32_t get32(const uint8_t *bytes)
{
	uint32_t value;

	memcpy(&value, bytes, sizeof(value));
	return le32toh(value);
}

static inline uint64_t get64(const uint8_t *bytes)
{
	uint64_t value;

	memcpy(&value, bytes, sizeof(value));
	return le64toh(value);
}

static inline void put16(uint8_t *bytes, uint16_t value)
{
	value = htole16(value);
	memcpy(bytes, &value, sizeof(value));
}

static inline void put32(uint8_t *bytes, uint32_t value)
{
	value = htole32(value);
	memcpy(bytes, &value, sizeof(value));
}

static inline void put64(uint8_t *bytes, uint64_t value)
{
	value = htole64(value);
	memcpy(bytes, &value, sizeof(value));
}

#endif
