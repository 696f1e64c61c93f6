/* offload/vector.h in AVX2, FMA and F16C. */
#ifndef TIERD_OFFLOAD_VECTOR_AVX2_H
#define TIERD_OFFLOAD_VECTOR_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#include "offload/noise.h"

#define VECTOR_LEVEL avx2
#define VECTOR_LANES 8

typedef __m256 vector;
typedef __m256i words;

static inline vector all(float x)
{
	return _mm256_set1_ps(x);
}

static inline vector load(const float *from)
{
	return _mm256_loadu_ps(from);
}

static inline void store(float *to, vector x)
{
	_mm256_storeu_ps(to, x);
}

static inline vector multiply(vector a, vector b)
{
	return _mm256_mul_ps(a, b);
}

static inline vector divide(vector a, vector b)
{
	return _mm256_div_ps(a, b);
}

static inline vector square_root(vector x)
{
	return _mm256_sqrt_ps(x);
}

static inline vector fused(vector a, vector b, vector c)
{
	return _mm256_fmadd_ps(a, b, c);
}

static inline vector fused_negative(vector a, vector b, vector c)
{
	return _mm256_fnmadd_ps(a, b, c);
}

static inline vector sign(vector x)
{
	vector minus = _mm256_and_ps(x, _mm256_set1_ps(-0.0f));
	vector one = _mm256_or_ps(minus, _mm256_set1_ps(1.0f));

	return _mm256_blendv_ps(x, one, _mm256_cmp_ps(x, _mm256_setzero_ps(), _CMP_NEQ_OQ));
}

static inline vector join(const uint16_t *high, const int16_t *low)
{
	__m256i upper = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)high));
	__m256i lower = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)low));

	return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(upper, 16), lower));
}

/* Rounding would make some NaNs a zero. Arithmetic gives only quiet ones, which the upper half tells. */
static inline void split(vector x, uint16_t *ret_high, int16_t *ret_low)
{
	__m256i bits = _mm256_castps_si256(x);
	__m256i is_number = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_ORD_Q));
	__m256i half = _mm256_and_si256(is_number, _mm256_set1_epi32(0x8000));
	__m256i high = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
	__m256i low = _mm256_and_si256(bits, _mm256_set1_epi32(0xffff));

	/* Packing works within 128 bits: it gives four of each, twice. */
	__m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, low), 0xd8);

	_mm_storeu_si128((__m128i *)ret_high, _mm256_castsi256_si128(both));
	_mm_storeu_si128((__m128i *)ret_low, _mm256_extracti128_si256(both, 1));
}

static inline void store_fp16(uint16_t *to, vector x)
{
	_mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline vector load_bf16(const uint16_t *from)
{
	__m256i upper = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from));

	return _mm256_castsi256_ps(_mm256_slli_epi32(upper, 16));
}

static inline words noise_at(uint64_t number, const uint32_t keys[2])
{
	__m256i lanes = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
	__m256i second = _mm256_set1_epi32((int)noise_second_key(number, keys));
	__m256i x = _mm256_add_epi32(_mm256_set1_epi32((int)((uint32_t)number + keys[0])), lanes);

	x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
	x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)NOISE_FIRST_FACTOR));
	x = _mm256_xor_si256(x, second);
	x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 15));
	x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)NOISE_SECOND_FACTOR));
	return _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
}

static inline void store_noisy(uint16_t *to, vector x, words noise, unsigned slot)
{
	__m256i bits = _mm256_castps_si256(x), sign = _mm256_set1_epi32(INT32_MIN);
	__m256i magnitude = _mm256_andnot_si256(sign, bits);
	__m256i limit = _mm256_max_epu32(magnitude, _mm256_set1_epi32(0x7f7fffff));
	__m256i half =
		slot == 0 ? _mm256_and_si256(noise, _mm256_set1_epi32(0xffff)) : _mm256_srli_epi32(noise, 16);
	__m256i rounded = _mm256_min_epu32(_mm256_add_epi32(magnitude, half), limit);

	rounded = _mm256_srli_epi32(_mm256_or_si256(rounded, _mm256_and_si256(bits, sign)), 16);
	/* Packing works within 128 bits: it gives four of each, twice. */
	rounded = _mm256_permute4x64_epi64(_mm256_packus_epi32(rounded, rounded), 0xd8);
	_mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(rounded));
}

#endif
