#include "offload/adamw_kernels.h"

#include <immintrin.h>

struct vectors {
	__m512 factor, beta1, beta1_rest, beta2, beta2_rest, decay, step, scale, epsilon;
};

static inline struct vectors broadcast(const struct adamw_constants *constants)
{
	return (struct vectors){
		.factor = _mm512_set1_ps(constants->factor),
		.beta1 = _mm512_set1_ps(constants->beta1),
		.beta1_rest = _mm512_set1_ps(constants->beta1_rest),
		.beta2 = _mm512_set1_ps(constants->beta2),
		.beta2_rest = _mm512_set1_ps(constants->beta2_rest),
		.decay = _mm512_set1_ps(constants->decay),
		.step = _mm512_set1_ps(constants->step),
		.scale = _mm512_set1_ps(constants->scale),
		.epsilon = _mm512_set1_ps(constants->epsilon),
	};
}

static inline void prefetch(const void *place)
{
	_mm_prefetch((const char *)place + ADAMW_AHEAD, _MM_HINT_T0);
}

static inline __m512 update_sixteen(const struct vectors *with, __m512 p, float *m, float *v,
				    const float *gradient)
{
	__m512 g = _mm512_mul_ps(_mm512_loadu_ps(gradient), with->factor);
	__m512 new_m = _mm512_fmadd_ps(with->beta1, _mm512_loadu_ps(m), _mm512_mul_ps(with->beta1_rest, g));
	__m512 new_v = _mm512_fmadd_ps(with->beta2, _mm512_loadu_ps(v),
				       _mm512_mul_ps(_mm512_mul_ps(with->beta2_rest, g), g));
	__m512 denominator = _mm512_fmadd_ps(_mm512_sqrt_ps(new_v), with->scale, with->epsilon);

	prefetch(m);
	prefetch(v);
	prefetch(gradient);
	_mm512_storeu_ps(m, new_m);
	_mm512_storeu_ps(v, new_v);
	return _mm512_fnmadd_ps(with->step, _mm512_div_ps(new_m, denominator), _mm512_mul_ps(p, with->decay));
}

static inline __m512 join(const uint16_t *parameter, const int16_t *remainder)
{
	__m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)parameter));
	__m512i low = _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)remainder));

	return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(high, 16), low));
}

/* Rounding would make some NaNs a zero. Arithmetic gives only quiet ones, which the upper half tells. */
static inline void split(__m512 p, uint16_t *ret_parameter, int16_t *ret_remainder)
{
	__m512i bits = _mm512_castps_si512(p);
	__mmask16 is_number = _mm512_cmp_ps_mask(p, p, _CMP_ORD_Q);
	__m512i rounded = _mm512_mask_add_epi32(bits, is_number, bits, _mm512_set1_epi32(0x8000));

	_mm256_storeu_si256((__m256i *)ret_parameter, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
	_mm256_storeu_si256((__m256i *)ret_remainder, _mm512_cvtepi32_epi16(bits));
}

static void split_avx512(const struct adamw_constants *constants, size_t count, uint16_t *parameter,
			 int16_t *remainder, float *m, float *v, const float *gradient)
{
	struct vectors with = broadcast(constants);
	size_t i = 0;

	for (; i + 16 <= count; i += 16) {
		__m512 p = join(parameter + i, remainder + i);

		prefetch(parameter + i);
		prefetch(remainder + i);
		split(update_sixteen(&with, p, m + i, v + i, gradient + i), parameter + i, remainder + i);
	}
	adamw_scalar.split(constants, count - i, parameter + i, remainder + i, m + i, v + i, gradient + i);
}

static void fp32_avx512(const struct adamw_constants *constants, size_t count, float *parameter, float *m,
			float *v, const float *gradient)
{
	struct vectors with = broadcast(constants);
	size_t i = 0;

	for (; i + 16 <= count; i += 16) {
		__m512 p = _mm512_loadu_ps(parameter + i);

		prefetch(parameter + i);
		_mm512_storeu_ps(parameter + i, update_sixteen(&with, p, m + i, v + i, gradient + i));
	}
	adamw_scalar.fp32(constants, count - i, parameter + i, m + i, v + i, gradient + i);
}

const struct adamw_kernels adamw_avx512 = { .split = split_avx512, .fp32 = fp32_avx512 };
