#include <stddef.h>
#include <stdint.h>

#include "common/float16.h"

#define LANES 1

typedef float vector;

/* Volatile: a client may write while this reads. */
static inline vector load_fp32(const float *from)
{
	return *(const volatile float *)from;
}

static inline vector load_bf16(const uint16_t *from)
{
	return bfloat16_to_float(*(const volatile uint16_t *)from);
}

static inline vector load_fp16(const uint16_t *from)
{
	return float16_to_float(*(const volatile uint16_t *)from);
}

static inline vector add(vector a, vector b)
{
	return a + b;
}

static inline void store(float *to, vector value)
{
	*to = value;
}

#include "collectives/reduce_rows.h"

const struct reduce_rows reduce_scalar = ROWS;
