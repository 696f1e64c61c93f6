/* offload/optimizer/vector.h in AVX-512 F, BW, DQ and VL. */
#ifndef TIERD_OFFLOAD_VECTOR_AVX512_H
#define TIERD_OFFLOAD_VECTOR_AVX512_H

#include <immintrin.h>
#include <stdint.h>

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
	__mmask16 is_other = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_NEQ_OQ);
	const words sign_bit = _mm512_set1_epi32(INT32_MIN), one = _mm512_castps_si512(_mm512_set1_ps(1.0f));

	/* Its sign and one's bits, in one go: (x & sign_bit) | one. */
	return _mm512_castsi512_ps(
		_mm512_mask_ternarylogic_epi32(_mm512_castps_si512(x), is_other, sign_bit, one, 0xea));
}

static inline vector join(const uint16_t *high, const int16_t *low)
{
	__m512i upper = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)high));
	__m512i lower = _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)low));

	return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(upper, 16), lower));
}

/* Rounding would make some NaNs a zero. Arithmetic gives only quiet ones, which the upper half tells. */
static inline words carry_half(vector x)
{
	__m512i bits = _mm512_castps_si512(x);
	__mmask16 is_number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);

	return _mm512_mask_add_epi32(bits, is_number, bits, _mm512_set1_epi32(0x8000));
}

static inline void split(vector x, uint16_t *ret_high, int16_t *ret_low)
{
	__m512i high = _mm512_srli_epi32(carry_half(x), 16);

	_mm256_storeu_si256((__m256i *)ret_high, _mm512_cvtepi32_epi16(high));
	_mm256_storeu_si256((__m256i *)ret_low, _mm512_cvtepi32_epi16(_mm512_castps_si512(x)));
}

static inline void store_fp16(uint16_t *to, vector x)
{
	_mm256_storeu_si256((__m256i *)to, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline words bits_of(vector x)
{
	return _mm512_castps_si512(x);
}

static inline vector from_bits(words x)
{
	return _mm512_castsi512_ps(x);
}

static inline words all_words(uint32_t x)
{
	return _mm512_set1_epi32((int)x);
}

static inline words lanes(void)
{
	return _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
}

static inline words add(words a, words b)
{
	return _mm512_add_epi32(a, b);
}

static inline words subtract(words a, words b)
{
	return _mm512_sub_epi32(a, b);
}

static inline words multiply_low(words a, words b)
{
	return _mm512_mullo_epi32(a, b);
}

static inline words both(words a, words b)
{
	return _mm512_and_si512(a, b);
}

static inline words either(words a, words b)
{
	return _mm512_or_si512(a, b);
}

static inline words differ(words a, words b)
{
	return _mm512_xor_si512(a, b);
}

static inline words shift_left(words x, unsigned places)
{
	return _mm512_slli_epi32(x, places);
}

static inline words shift_right(words x, unsigned places)
{
	return _mm512_srli_epi32(x, places);
}

static inline words least(words a, words b)
{
	return _mm512_min_epu32(a, b);
}

static inline words greatest(words a, words b)
{
	return _mm512_max_epu32(a, b);
}

static inline words add_where_less(words x, words y, words a, words b)
{
	return _mm512_mask_add_epi32(x, _mm512_cmplt_epi32_mask(a, b), x, y);
}

static inline uint32_t greatest_lane(words x)
{
	return _mm512_reduce_max_epu32(x);
}

static inline words load_bytes(const uint8_t *from)
{
	return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)from));
}

static inline void store_bytes(uint8_t *to, words x)
{
	_mm_storeu_si128((__m128i *)to, _mm512_cvtusepi32_epi8(x));
}

static inline words load_halves(const uint16_t *from)
{
	return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)from));
}

static inline void store_halves(uint16_t *to, words x)
{
	_mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(x));
}

static inline words load_pairs(const void *from)
{
	return _mm512_loadu_si512(from);
}

static inline void store_pairs(void *to, words x)
{
	_mm512_storeu_si512(to, x);
}

static inline words blend_halves(words lower, words upper)
{
	const words upper_half = _mm512_set1_epi32((int)0xffff0000);

	/* The third says which of the others. A blend would take a mask that compilers load each time. */
	return _mm512_ternarylogic_epi32(lower, upper, upper_half, 0xd8);
}

static inline words borrow_halves(words x, words y)
{
	return _mm512_add_epi16(x, _mm512_srai_epi16(y, 15));
}

static inline void load_apart(const float *from, vector *ret_even, vector *ret_odd)
{
	vector first = load(from), second = load(from + VECTOR_LANES);
	const words even = add(lanes(), lanes());

	*ret_even = _mm512_permutex2var_ps(first, even, second);
	*ret_odd = _mm512_permutex2var_ps(first, add(even, all_words(1)), second);
}

#endif
