#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

#define LANES 16

typedef __m512 vector;

static inline vector load_fp32(const float *from)
{
	return _mm512_loadu_ps(from);
}

static inline vector load_bf16(const uint16_t *from)
{
	__m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from));

	return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}

static inline vector load_fp16(const uint16_t *from)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}

static inline vector add(vector a, vector b)
{
	return _mm512_add_ps(a, b);
}

static inline void store(float *to, vector value)
{
	_mm512_storeu_ps(to, value);
}

#include "collectives/reduce_rows.h"

const struct reduce_rows reduce_avx512 = ROWS;
