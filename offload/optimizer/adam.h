/* What Adam and AdamW share: their moments, and the step that these make. */
#ifndef TIERD_OFFLOAD_ADAM_H
#define TIERD_OFFLOAD_ADAM_H

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "offload/optimizer/moment_rows.h"

static inline int adam_check(const struct optimizer_group *group, char *message, size_t size)
{
	int r = optimizer_check_betas(group, message, size);

	if (r < 0)
		return r;
	/* Written so that a NaN fails too. */
	if (!(group->epsilon > 0) || !isfinite(group->epsilon)) {
		snprintf(message, size, "epsilon is %g; it is above 0", (double)group->epsilon);
		return -EINVAL;
	}
	return 0;
}

/* By binary exponentiation: the last bit of a library's pow() differs between libraries. */
static inline double adam_power(double base, uint64_t exponent)
{
	double result = 1;

	for (; exponent > 0; exponent >>= 1) {
		if (exponent & 1)
			result *= base;
		base *= base;
	}
	return result;
}

static inline void adam_set(const struct optimizer_group *group, double rate, uint64_t update,
			    struct adam_constants *ret_constants)
{
	ret_constants->beta1 = group->beta1;
	ret_constants->beta1_rest = (float)(1 - (double)group->beta1);
	ret_constants->beta2 = group->beta2;
	ret_constants->beta2_rest = (float)(1 - (double)group->beta2);
	ret_constants->step = (float)(rate / (1 - adam_power(group->beta1, update)));
	ret_constants->scale = (float)(1 / sqrt(1 - adam_power(group->beta2, update)));
	ret_constants->epsilon = group->epsilon;
}

/* p - step * m / (sqrt(v) * scale + epsilon), with the moments moved on by g. */
static inline vector adam_step(const struct adam_constants *with, vector p, vector g, struct moments *moments,
			       size_t i)
{
	vector new_m =
		fused(all(with->beta1), moment_load(moments, 0, i), multiply(all(with->beta1_rest), g));
	vector new_v = fused(all(with->beta2), moment_load(moments, 1, i),
			     multiply(multiply(all(with->beta2_rest), g), g));
	vector denominator = fused(square_root(new_v), all(with->scale), all(with->epsilon));

	moment_store(moments, 0, i, new_m);
	moment_store(moments, 1, i, new_v);
	return fused_negative(all(with->step), divide(new_m, denominator), p);
}

#endif
