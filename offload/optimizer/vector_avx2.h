/* offload/optimizer/vector.h in AVX2, FMA and F16C. */
#ifndef TIERD_OFFLOAD_VECTOR_AVX2_H
#define TIERD_OFFLOAD_VECTOR_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define VECTOR_LEVEL avx2
#define VECTOR_LANES 8
#define WIDE_LANES 4

typedef __m256 vector;
typedef __m256i words;
typedef __m256i wides;

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
static inline words carry_half(vector x)
{
	__m256i is_number = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_ORD_Q));
	__m256i half = _mm256_and_si256(is_number, _mm256_set1_epi32(0x8000));

	return _mm256_add_epi32(_mm256_castps_si256(x), half);
}

static inline void split(vector x, uint16_t *ret_high, int16_t *ret_low)
{
	__m256i high = _mm256_srli_epi32(carry_half(x), 16);
	__m256i low = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0xffff));

	/* Packing works within 128 bits: it gives four of each, twice. */
	__m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, low), 0xd8);

	_mm_storeu_si128((__m128i *)ret_high, _mm256_castsi256_si128(both));
	_mm_storeu_si128((__m128i *)ret_low, _mm256_extracti128_si256(both, 1));
}

static inline void store_fp16(uint16_t *to, vector x)
{
	_mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline words bits_of(vector x)
{
	return _mm256_castps_si256(x);
}

static inline vector from_bits(words x)
{
	return _mm256_castsi256_ps(x);
}

static inline words all_words(uint32_t x)
{
	return _mm256_set1_epi32((int)x);
}

static inline words lanes(void)
{
	return _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
}

static inline words add(words a, words b)
{
	return _mm256_add_epi32(a, b);
}

static inline words multiply_low(words a, words b)
{
	return _mm256_mullo_epi32(a, b);
}

static inline words both(words a, words b)
{
	return _mm256_and_si256(a, b);
}

static inline words either(words a, words b)
{
	return _mm256_or_si256(a, b);
}

static inline words differ(words a, words b)
{
	return _mm256_xor_si256(a, b);
}

static inline words shift_left(words x, unsigned places)
{
	return _mm256_slli_epi32(x, (int)places);
}

static inline words shift_right(words x, unsigned places)
{
	return _mm256_srli_epi32(x, (int)places);
}

static inline words greatest(words a, words b)
{
	return _mm256_max_epu32(a, b);
}

static inline words add_where_less(words x, words y, words a, words b)
{
	return _mm256_add_epi32(x, _mm256_and_si256(y, _mm256_cmpgt_epi32(b, a)));
}

static inline uint32_t greatest_lane(words x)
{
	__m128i four = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
	__m128i two = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));

	return (uint32_t)_mm_cvtsi128_si32(_mm_max_epu32(two, _mm_shuffle_epi32(two, 0xb1)));
}

/* Packing works within 128 bits: it gives four of each, twice. */
static inline __m128i pack_halves(words x)
{
	return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(x, x), 0xd8));
}

static inline words greatest_where(words x, words y, words z)
{
	words is_zero = _mm256_cmpeq_epi32(z, _mm256_setzero_si256());

	return _mm256_max_epu32(x, _mm256_andnot_si256(is_zero, y));
}

static inline words load_bytes(const uint8_t *from)
{
	const words places = _mm256_add_epi32(_mm256_set1_epi32(0xffffff), _mm256_slli_epi32(lanes(), 24));

	return _mm256_shuffle_epi8(_mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)from)), places);
}

static inline words load_halves(const uint16_t *from)
{
	return _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)from));
}

static inline void store_halves(uint16_t *to, words x)
{
	_mm_storeu_si128((__m128i *)to, pack_halves(x));
}

static inline words load_pairs(const void *from)
{
	return _mm256_loadu_si256(from);
}

static inline void store_pairs(void *to, words x)
{
	_mm256_storeu_si256(to, x);
}

static inline words blend_halves(words lower, words upper)
{
	return _mm256_blend_epi16(lower, upper, 0xaa);
}

static inline words borrow_halves(words x, words y)
{
	return _mm256_add_epi16(x, _mm256_srai_epi16(y, 15));
}

/* Shuffling works within 128 bits: so each gets the first four elements of eight, or the second four. */
static inline void load_apart(const float *from, vector *ret_even, vector *ret_odd)
{
	vector first = _mm256_loadu2_m128(from + 8, from), second = _mm256_loadu2_m128(from + 12, from + 4);

	*ret_even = _mm256_shuffle_ps(first, second, 0x88);
	*ret_odd = _mm256_shuffle_ps(first, second, 0xdd);
}

/* Packing works within 128 bits: it gives four of each, twice. */
static inline words pack_uppers(words x, words y)
{
	return _mm256_packus_epi32(shift_right(x, 16), shift_right(y, 16));
}

/* What a half has no room for becomes the least or the greatest that it has. */
static inline words pack_signs(words x, words y)
{
	return _mm256_packs_epi32(x, y);
}

static inline words all_halves(uint16_t x)
{
	return _mm256_set1_epi16((short)x);
}

static inline words subtract_halves(words a, words b)
{
	return _mm256_sub_epi16(a, b);
}

static inline words least_halves(words a, words b)
{
	return _mm256_min_epu16(a, b);
}

static inline words shift_right_halves(words x, unsigned places)
{
	return _mm256_srli_epi16(x, (int)places);
}

static inline void store_packed(uint8_t *to, words x)
{
	const words fours = _mm256_set_epi32(0, 0, 0, 0, 5, 1, 4, 0);
	words bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(x, x), fours);

	_mm_storeu_si128((__m128i *)to, _mm256_castsi256_si128(bytes));
}

static inline wides all_wides(uint64_t x)
{
	return _mm256_set1_epi64x((long long)x);
}

static inline wides load_wides(const uint64_t *from)
{
	return _mm256_loadu_si256((const __m256i *)from);
}

static inline void store_wides(uint64_t *to, wides x)
{
	_mm256_storeu_si256((__m256i *)to, x);
}

static inline wides differ_wides(wides a, wides b)
{
	return _mm256_xor_si256(a, b);
}

static inline wides shift_right_wides(wides x, unsigned places)
{
	return _mm256_srli_epi64(x, (int)places);
}

static inline wides multiply_lower_halves(wides a, wides b)
{
	return _mm256_mul_epu32(a, b);
}

#endif
