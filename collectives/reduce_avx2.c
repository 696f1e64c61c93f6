#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define LANES 8

typedef __m256 vector;

static inline vector load_fp32(const float *from)
{
	return _mm256_loadu_ps(from);
}

static inline vector load_bf16(const uint16_t *from)
{
	__m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from));

	return _mm256_castsi256_ps(_mm256_slli_epi32(bits, 16));
}

static inline vector load_fp16(const uint16_t *from)
{
	return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}

static inline vector add(vector a, vector b)
{
	return _mm256_add_ps(a, b);
}

static inline void store(float *to, vector value)
{
	_mm256_storeu_ps(to, value);
}

#include "collectives/reduce_rows.h"

const struct reduce_rows reduce_avx2 = ROWS;
