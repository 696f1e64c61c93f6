#include "kernels.h"

#include <math.h>

/* What docs/numerics.md says, in the plainest C: the reference that tierd's own kernels are compared with. */

#define LANES 16

static void widen(enum number_format format, size_t count, const uint16_t *values, float *ret_values)
{
	for (size_t i = 0; i < count; i++)
		ret_values[i] = number_from_narrow(values[i], format);
}

static void narrow(enum number_format format, size_t count, const float *values, uint16_t *ret_values)
{
	for (size_t i = 0; i < count; i++)
		ret_values[i] = number_to_narrow(values[i], format);
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

/* Adam and AdamW differ in where the weight decay goes. */
static inline float adam_step(const struct update_constants *k, float g, float *m, float *v, float decayed)
{
	*m = __builtin_fmaf(k->beta1, *m, k->c1 * g);
	*v = __builtin_fmaf(k->beta2, *v, (k->c2 * g) * g);
	return __builtin_fmaf(-k->step, *m / __builtin_fmaf(sqrtf(*v), k->scale, k->epsilon), decayed);
}

static void adamw(const struct update_constants *constants, size_t count, const float *gradients,
		  float *const slots[KERNEL_SLOTS], float *master)
{
	const struct update_constants k = *constants;
	float *m = slots[0], *v = slots[1];

	for (size_t i = 0; i < count; i++)
		master[i] = adam_step(&k, gradients[i] * k.factor, &m[i], &v[i], master[i] * k.decay);
}

static void adam(const struct update_constants *constants, size_t count, const float *gradients,
		 float *const slots[KERNEL_SLOTS], float *master)
{
	const struct update_constants k = *constants;
	float *m = slots[0], *v = slots[1];

	for (size_t i = 0; i < count; i++) {
		float g = __builtin_fmaf(k.weight_decay, master[i], gradients[i] * k.factor);

		master[i] = adam_step(&k, g, &m[i], &v[i], master[i]);
	}
}

/* Without dampening. */
static void sgd(const struct update_constants *constants, size_t count, const float *gradients,
		float *const slots[KERNEL_SLOTS], float *master)
{
	const struct update_constants k = *constants;
	float *momentum = slots[0];

	for (size_t i = 0; i < count; i++) {
		float g = __builtin_fmaf(k.weight_decay, master[i], gradients[i] * k.factor);

		if (k.momentum != 0.0f)
			g = momentum[i] = __builtin_fmaf(k.momentum, momentum[i], g);
		master[i] = __builtin_fmaf(-k.rate, g, master[i]);
	}
}

static void lion(const struct update_constants *constants, size_t count, const float *gradients,
		 float *const slots[KERNEL_SLOTS], float *master)
{
	const struct update_constants k = *constants;
	float *m = slots[0];

	for (size_t i = 0; i < count; i++) {
		float g = gradients[i] * k.factor, direction = __builtin_fmaf(k.beta1, m[i], k.c1 * g);
		float sign = direction > 0.0f ? 1.0f : direction < 0.0f ? -1.0f : direction;

		m[i] = __builtin_fmaf(k.beta2, m[i], k.c2 * g);
		master[i] = __builtin_fmaf(-k.rate, sign, master[i] * k.decay);
	}
}

const struct update_kernels KERNEL_TABLE(update_kernels) = {
	.widen = widen,
	.narrow = narrow,
	.add = add,
	.sum_of_squares = sum_of_squares,
	.updates = { [TIERD_ADAMW] = adamw, [TIERD_ADAM] = adam, [TIERD_SGD] = sgd, [TIERD_LION] = lion },
};
