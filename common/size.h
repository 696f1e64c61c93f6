/* Arithmetic on sizes that come from outside: it says when it overflows. */
#ifndef TIERD_COMMON_SIZE_H
#define TIERD_COMMON_SIZE_H

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * KIB)
#define GIB (UINT64_C(1024) * MIB)
#define TIB (UINT64_C(1024) * GIB)

static inline bool size_add(uint64_t a, uint64_t b, uint64_t *ret)
{
	return !__builtin_add_overflow(a, b, ret);
}

static inline bool size_multiply(uint64_t a, uint64_t b, uint64_t *ret)
{
	return !__builtin_mul_overflow(a, b, ret);
}

/* What is left of so much; nothing, if more was used. */
static inline uint64_t size_rest(uint64_t most, uint64_t used)
{
	return most > used ? most - used : 0;
}

/* 0 of nothing. */
static inline double size_fraction(uint64_t part, uint64_t whole)
{
	return whole > 0 ? (double)part / (double)whole : 0;
}

/* UINT64_MAX where it overflows: more than there ever is. */
static inline uint64_t size_sum(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return size_add(a, b, &sum) ? sum : UINT64_MAX;
}

static inline uint64_t size_product(uint64_t a, uint64_t b)
{
	uint64_t product;

	return size_multiply(a, b, &product) ? product : UINT64_MAX;
}

/* The unit is a power of two; the value is at most UINT64_MAX - unit. */
static inline uint64_t size_align(uint64_t value, uint64_t unit)
{
	assert((unit & (unit - 1)) == 0);
	return (value + unit - 1) & ~(unit - 1);
}

static inline uint64_t size_divide_up(uint64_t value, uint64_t unit)
{
	return value / unit + (value % unit != 0);
}

/* As size_align(), for any unit. */
static inline uint64_t size_round_up(uint64_t value, uint64_t unit)
{
	return size_divide_up(value, unit) * unit;
}

#endif
