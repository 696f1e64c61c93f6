/* What Adam and AdamW share: their checks and constants. */
#ifndef TIERD_OFFLOAD_ADAM_H
#define TIERD_OFFLOAD_ADAM_H

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "offload/optimizer/optimizer.h"

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

#endif
