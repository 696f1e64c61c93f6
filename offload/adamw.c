#include "offload/adamw_kernels.h"

#include <assert.h>
#include <float.h>
#include <math.h>

#include "common/bfloat16.h"

_Static_assert(FLT_EVAL_METHOD == 0, "fp32 arithmetic must round to fp32");

static double power(double base, uint64_t exponent)
{
	double result = 1;

	for (; exponent > 0; exponent >>= 1) {
		if (exponent & 1)
			result *= base;
		base *= base;
	}
	return result;
}

void adamw_constants(const struct adamw_rates *rates, uint64_t update, float factor,
		     struct adamw_constants *ret_constants)
{
	double rate = rates->learning_rate;

	assert(update > 0);
	*ret_constants = (struct adamw_constants){
		.factor = factor,
		.beta1 = rates->beta1,
		.beta1_rest = (float)(1 - (double)rates->beta1),
		.beta2 = rates->beta2,
		.beta2_rest = (float)(1 - (double)rates->beta2),
		.decay = (float)(1 - rate * (double)rates->weight_decay),
		.step = (float)(rate / (1 - power(rates->beta1, update))),
		.scale = (float)(1 / sqrt(1 - power(rates->beta2, update))),
		.epsilon = rates->epsilon,
	};
}

static inline float update_one(const struct adamw_constants *constants, float p, float *m, float *v,
			       float gradient)
{
	float g = gradient * constants->factor;

	*m = fmaf(constants->beta1, *m, constants->beta1_rest * g);
	*v = fmaf(constants->beta2, *v, (constants->beta2_rest * g) * g);
	return fmaf(-constants->step, *m / fmaf(sqrtf(*v), constants->scale, constants->epsilon),
		    p * constants->decay);
}

static void split_scalar(const struct adamw_constants *constants, size_t count, uint16_t *parameter,
			 int16_t *remainder, float *m, float *v, const float *gradient)
{
	for (size_t i = 0; i < count; i++) {
		float p = update_one(constants, bfloat16_join(parameter[i], remainder[i]), &m[i], &v[i],
				     gradient[i]);

		parameter[i] = bfloat16_from_float(p);
		remainder[i] = bfloat16_remainder(p);
	}
}

static void fp32_scalar(const struct adamw_constants *constants, size_t count, float *parameter, float *m,
			float *v, const float *gradient)
{
	for (size_t i = 0; i < count; i++)
		parameter[i] = update_one(constants, parameter[i], &m[i], &v[i], gradient[i]);
}

const struct adamw_kernels adamw_scalar = { .split = split_scalar, .fp32 = fp32_scalar };

const struct adamw_kernels *adamw_kernels(enum simd_level level)
{
#ifdef __x86_64__
	if (level == SIMD_AVX512)
		return &adamw_avx512;
	if (level == SIMD_AVX2)
		return &adamw_avx2;
#endif
	return &adamw_scalar;
}
