/* AdamW over ranges of elements, in the order of docs/numerics.md: every kernel gives the same bits. */
#ifndef TIERD_OFFLOAD_ADAMW_H
#define TIERD_OFFLOAD_ADAMW_H

#include <stddef.h>
#include <stdint.h>

#include "common/simd.h"

struct adamw_rates {
	double learning_rate; /* the step's times the group's */
	float beta1, beta2, epsilon, weight_decay;
};

/* What the kernels need, rounded once from fp64. */
struct adamw_constants {
	float factor; /* multiplies the gradient */
	float beta1, beta1_rest, beta2, beta2_rest;
	float decay, step, scale, epsilon;
};

/* update counts from 1: the number of this update of the unit. */
void adamw_constants(const struct adamw_rates *rates, uint64_t update, float factor,
		     struct adamw_constants *ret_constants);

/* All arrays have count elements, any count, 4-byte (16-bit arrays: 2-byte) aligned; fastest where 64-byte
 * aligned. They do not overlap. */
struct adamw_kernels {
	/* bf16 parameters with a split master. */
	void (*split)(const struct adamw_constants *constants, size_t count, uint16_t *parameter,
		      int16_t *remainder, float *m, float *v, const float *gradient);
	/* fp32 parameters. */
	void (*fp32)(const struct adamw_constants *constants, size_t count, float *parameter, float *m,
		     float *v, const float *gradient);
};

/* level is at most simd_level(). */
const struct adamw_kernels *adamw_kernels(enum simd_level level);

#endif
