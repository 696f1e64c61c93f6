/* offload/optimizer/vector.h in AVX-512 F, BW, DQ and VL. */
#ifndef TIERD_OFFLOAD_VECTOR_AVX512_H
#define TIERD_OFFLOAD_VECTOR_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define VECTOR_LEVEL avx512
#define VECTOR_LANES 16
#define WIDE_LANES 8

typedef __m512 vector;
typedef __m512i words;
typedef __m512i wides;

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

/* Where the halves of each word come from: of the lower halves of two vectors, taken in turns, and of the
 * upper halves of the words of two. */
#define IN_TURNS                                                                                             \
	_mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5,  \
			 36, 4, 35, 3, 34, 2, 33, 1, 32, 0)
#define UPPERS                                                                                               \
	_mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, \
			 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1)

static inline vector join(const uint16_t *high, const int16_t *low)
{
	__m256i lower = _mm256_loadu_si256((const __m256i *)low), borrow = _mm256_srai_epi16(lower, 15);
	__m256i upper = _mm256_add_epi16(_mm256_loadu_si256((const __m256i *)high), borrow);

	return _mm512_castsi512_ps(_mm512_permutex2var_epi16(_mm512_castsi256_si512(lower), IN_TURNS,
							     _mm512_castsi256_si512(upper)));
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
	__m512i high = _mm512_permutexvar_epi16(UPPERS, carry_half(x));

	_mm256_storeu_si256((__m256i *)ret_high, _mm512_castsi512_si256(high));
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

static inline words greatest_where(words x, words y, words z)
{
	return _mm512_mask_max_epu32(x, _mm512_test_epi32_mask(z, z), x, y);
}

static inline words load_bytes(const uint8_t *from)
{
	const words places = _mm512_add_epi32(_mm512_set1_epi32(0xffffff), _mm512_slli_epi32(lanes(), 24));

	return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)from)), places);
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

static inline words pack_uppers(words x, words y)
{
	return _mm512_permutex2var_epi16(x, UPPERS, y);
}

static inline words pack_signs(words x, words y)
{
	return pack_uppers(x, y);
}

static inline words all_halves(uint16_t x)
{
	return _mm512_set1_epi16((short)x);
}

static inline words subtract_halves(words a, words b)
{
	return _mm512_sub_epi16(a, b);
}

static inline words least_halves(words a, words b)
{
	return _mm512_min_epu16(a, b);
}

static inline words shift_right_halves(words x, unsigned places)
{
	return _mm512_srli_epi16(x, places);
}

static inline void store_packed(uint8_t *to, words x)
{
	_mm256_storeu_si256((__m256i *)to, _mm512_cvtusepi16_epi8(x));
}

static inline wides all_wides(uint64_t x)
{
	return _mm512_set1_epi64((long long)x);
}

static inline wides load_wides(const uint64_t *from)
{
	return _mm512_loadu_si512(from);
}

static inline void store_wides(uint64_t *to, wides x)
{
	_mm512_storeu_si512(to, x);
}

static inline wides differ_wides(wides a, wides b)
{
	return _mm512_xor_si512(a, b);
}

static inline wides shift_right_wides(wides x, unsigned places)
{
	return _mm512_srli_epi64(x, places);
}

static inline wides multiply_lower_halves(wides a, wides b)
{
	return _mm512_mul_epu32(a, b);
}

#endif
