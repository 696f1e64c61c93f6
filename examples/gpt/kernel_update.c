#include "kernels.h"

#include <math.h>

/* What docs/numerics.md says, in the plainest C: the reference that tierd's own kernels are compared with. */

#define LANES 16

static void widen(size_t count, const uint16_t *values, float *ret_values)
{
	for (size_t i = 0; i < count; i++)
		ret_values[i] = number_from_bf16(values[i]);
}

static void narrow(size_t count, const float *values, uint16_t *ret_values)
{
	for (size_t i = 0; i < count; i++)
		ret_values[i] = number_to_bf16(values[i]);
}

static void add(size_t count, const float *values, float *sum)
{
	for (size_t i = 0; i < count; i++)
		sum[i] = sum[i] + values[i];
}

static double sum_of_squares(size_t count, const float *values)
{
	double lanes[LANES] = { 0 };
	size_t i = 0;

	for (; i + LANES <= count; i += LANES) {
		for (size_t j = 0; j < LANES; j++)
			lanes[j] += (double)values[i + j] * (double)values[i + j];
	}
	for (size_t j = 0; i + j < count; j++)
		lanes[j] += (double)values[i + j] * (double)values[i + j];
	for (size_t half = LANES / 2; half > 0; half /= 2) {
		for (size_t j = 0; j < half; j++)
			lanes[j] = lanes[j] + lanes[j + half];
	}
	return lanes[0];
}

static void adamw(const struct adamw_constants *constants, size_t count, const float *gradients, float *m,
		  float *v, float *master)
{
	const struct adamw_constants k = *constants;

	for (size_t i = 0; i < count; i++) {
		float g = gradients[i] * k.factor;

		m[i] = __builtin_fmaf(k.beta1, m[i], k.c1 * g);
		v[i] = __builtin_fmaf(k.beta2, v[i], (k.c2 * g) * g);
		master[i] = __builtin_fmaf(-k.step, m[i] / __builtin_fmaf(sqrtf(v[i]), k.scale, k.epsilon),
					   master[i] * k.decay);
	}
}

const struct update_kernels KERNEL_TABLE(update_kernels) = {
	.widen = widen,
	.narrow = narrow,
	.add = add,
	.sum_of_squares = sum_of_squares,
	.adamw = adamw,
};
