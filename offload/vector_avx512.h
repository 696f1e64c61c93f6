/* offload/vector.h in AVX-512 F, BW, DQ and VL. */
#ifndef TIERD_OFFLOAD_VECTOR_AVX512_H
#define TIERD_OFFLOAD_VECTOR_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#include "offload/noise.h"

#define VECTOR_LEVEL avx512
#define VECTOR_LANES 16

typedef __m512 vector;
typedef __m512i words;

static inline vector all(float x)
{
	return _mm512_set1_ps(x);
}

static inline vector load(const float *from)
{
	return _mm512_loadu_ps(from);
}

static inline void store(float *to, vector x)
{
	_mm512_storeu_ps(to, x);
}

static inline vector multiply(vector a, vector b)
{
	return _mm512_mul_ps(a, b);
}

static inline vector divide(vector a, vector b)
{
	return _mm512_div_ps(a, b);
}

static inline vector square_root(vector x)
{
	return _mm512_sqrt_ps(x);
}

static inline vector fused(vector a, vector b, vector c)
{
	return _mm512_fmadd_ps(a, b, c);
}

static inline vector fused_negative(vector a, vector b, vector c)
{
	return _mm512_fnmadd_ps(a, b, c);
}

static inline vector sign(vector x)
{
	vector minus = _mm512_and_ps(x, _mm512_set1_ps(-0.0f));
	vector one = _mm512_or_ps(minus, _mm512_set1_ps(1.0f));

	return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NEQ_OQ), one);
}

static inline vector join(const uint16_t *high, const int16_t *low)
{
	__m512i upper = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)high));
	__m512i lower = _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)low));

	return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(upper, 16), lower));
}

/* Rounding would make some NaNs a zero. Arithmetic gives only quiet ones, which the upper half tells. */
static inline void split(vector x, uint16_t *ret_high, int16_t *ret_low)
{
	__m512i bits = _mm512_castps_si512(x);
	__mmask16 is_number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
	__m512i rounded = _mm512_mask_add_epi32(bits, is_number, bits, _mm512_set1_epi32(0x8000));

	_mm256_storeu_si256((__m256i *)ret_high, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
	_mm256_storeu_si256((__m256i *)ret_low, _mm512_cvtepi32_epi16(bits));
}

static inline void store_fp16(uint16_t *to, vector x)
{
	_mm256_storeu_si256((__m256i *)to, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline vector load_bf16(const uint16_t *from)
{
	__m512i upper = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from));

	return _mm512_castsi512_ps(_mm512_slli_epi32(upper, 16));
}

static inline words noise_at(uint64_t number, const uint32_t keys[2])
{
	__m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
	__m512i second = _mm512_set1_epi32((int)noise_second_key(number, keys));
	__m512i x = _mm512_add_epi32(_mm512_set1_epi32((int)((uint32_t)number + keys[0])), lanes);

	x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
	x = _mm512_mullo_epi32(x, _mm512_set1_epi32((int)NOISE_FIRST_FACTOR));
	x = _mm512_xor_si512(x, second);
	x = _mm512_xor_si512(x, _mm512_srli_epi32(x, 15));
	x = _mm512_mullo_epi32(x, _mm512_set1_epi32((int)NOISE_SECOND_FACTOR));
	return _mm512_xor_si512(x, _mm512_srli_epi32(x, 16));
}

static inline void store_noisy(uint16_t *to, vector x, words noise, unsigned slot)
{
	__m512i bits = _mm512_castps_si512(x), sign = _mm512_set1_epi32(INT32_MIN);
	__m512i magnitude = _mm512_andnot_si512(sign, bits);
	__m512i limit = _mm512_max_epu32(magnitude, _mm512_set1_epi32(0x7f7fffff));
	__m512i half =
		slot == 0 ? _mm512_and_si512(noise, _mm512_set1_epi32(0xffff)) : _mm512_srli_epi32(noise, 16);
	__m512i rounded = _mm512_min_epu32(_mm512_add_epi32(magnitude, half), limit);

	rounded = _mm512_or_si512(rounded, _mm512_and_si512(bits, sign));
	_mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

#endif
