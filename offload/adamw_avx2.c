#include "offload/adamw_kernels.h"

#include <immintrin.h>

struct vectors {
	__m256 factor, beta1, beta1_rest, beta2, beta2_rest, decay, step, scale, epsilon;
};

static inline struct vectors broadcast(const struct adamw_constants *constants)
{
	return (struct vectors){
		.factor = _mm256_set1_ps(constants->factor),
		.beta1 = _mm256_set1_ps(constants->beta1),
		.beta1_rest = _mm256_set1_ps(constants->beta1_rest),
		.beta2 = _mm256_set1_ps(constants->beta2),
		.beta2_rest = _mm256_set1_ps(constants->beta2_rest),
		.decay = _mm256_set1_ps(constants->decay),
		.step = _mm256_set1_ps(constants->step),
		.scale = _mm256_set1_ps(constants->scale),
		.epsilon = _mm256_set1_ps(constants->epsilon),
	};
}

static inline void prefetch(const void *place)
{
	_mm_prefetch((const char *)place + ADAMW_AHEAD, _MM_HINT_T0);
}

static inline __m256 update_eight(const struct vectors *with, __m256 p, float *m, float *v,
				  const float *gradient)
{
	__m256 g = _mm256_mul_ps(_mm256_loadu_ps(gradient), with->factor);
	__m256 new_m = _mm256_fmadd_ps(with->beta1, _mm256_loadu_ps(m), _mm256_mul_ps(with->beta1_rest, g));
	__m256 new_v = _mm256_fmadd_ps(with->beta2, _mm256_loadu_ps(v),
				       _mm256_mul_ps(_mm256_mul_ps(with->beta2_rest, g), g));
	__m256 denominator = _mm256_fmadd_ps(_mm256_sqrt_ps(new_v), with->scale, with->epsilon);

	prefetch(m);
	prefetch(v);
	prefetch(gradient);
	_mm256_storeu_ps(m, new_m);
	_mm256_storeu_ps(v, new_v);
	return _mm256_fnmadd_ps(with->step, _mm256_div_ps(new_m, denominator), _mm256_mul_ps(p, with->decay));
}

static inline __m256 join(const uint16_t *parameter, const int16_t *remainder)
{
	__m256i high = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)parameter));
	__m256i low = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)remainder));

	return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(high, 16), low));
}

/* Rounding would make some NaNs a zero. Arithmetic gives only quiet ones, which the upper half tells. */
static inline void split(__m256 p, uint16_t *ret_parameter, int16_t *ret_remainder)
{
	__m256i bits = _mm256_castps_si256(p);
	__m256i is_number = _mm256_castps_si256(_mm256_cmp_ps(p, p, _CMP_ORD_Q));
	__m256i half = _mm256_and_si256(is_number, _mm256_set1_epi32(0x8000));
	__m256i parameter = _mm256_srli_epi32(_mm256_add_epi32(bits, half), 16);
	__m256i remainder = _mm256_and_si256(bits, _mm256_set1_epi32(0xffff));

	/* Packing works within 128 bits: it gives four of each, twice. */
	__m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(parameter, remainder), 0xd8);

	_mm_storeu_si128((__m128i *)ret_parameter, _mm256_castsi256_si128(both));
	_mm_storeu_si128((__m128i *)ret_remainder, _mm256_extracti128_si256(both, 1));
}

static void split_avx2(const struct adamw_constants *constants, size_t count, uint16_t *parameter,
		       int16_t *remainder, float *m, float *v, const float *gradient)
{
	struct vectors with = broadcast(constants);
	size_t i = 0;

	for (; i + 8 <= count; i += 8) {
		__m256 p = join(parameter + i, remainder + i);

		prefetch(parameter + i);
		prefetch(remainder + i);
		split(update_eight(&with, p, m + i, v + i, gradient + i), parameter + i, remainder + i);
	}
	adamw_scalar.split(constants, count - i, parameter + i, remainder + i, m + i, v + i, gradient + i);
}

static void fp32_avx2(const struct adamw_constants *constants, size_t count, float *parameter, float *m,
		      float *v, const float *gradient)
{
	struct vectors with = broadcast(constants);
	size_t i = 0;

	for (; i + 8 <= count; i += 8) {
		__m256 p = _mm256_loadu_ps(parameter + i);

		prefetch(parameter + i);
		_mm256_storeu_ps(parameter + i, update_eight(&with, p, m + i, v + i, gradient + i));
	}
	adamw_scalar.fp32(constants, count - i, parameter + i, m + i, v + i, gradient + i);
}

const struct adamw_kernels adamw_avx2 = { .split = split_avx2, .fp32 = fp32_avx2 };
