/* An optimizer: what it keeps for each parameter, and how it updates ranges of them, in the order of
 * docs/numerics.md: every level of vector instructions gives the same bits. */
#ifndef TIERD_OFFLOAD_OPTIMIZER_H
#define TIERD_OFFLOAD_OPTIMIZER_H

#include <stddef.h>
#include <stdint.h>

#include "common/simd.h"
#include "offload/format.h"

#define OPTIMIZER_MAX_SLOTS 2

/* What a parameter group may choose; each optimizer looks at its own. */
struct optimizer_group {
	float learning_rate; /* multiplies the step's */
	float beta1, beta2, epsilon, weight_decay;
};

/* What the kernels of an update need, computed in fp64 and rounded once. */
struct optimizer_constants {
	float factor; /* multiplies the gradient */
	union {
		struct adam_constants {
			float beta1, beta1_rest, beta2, beta2_rest;
			float decay, step, scale, epsilon;
		} adam;
	};
};

/* All arrays have count elements, any count, aligned to one element; fastest where 64-byte aligned. They do
 * not overlap. */
struct optimizer_arrays {
	void *parameter; /* in its format */
	void *master; /* what it takes beside that to know the fp32 master, or NULL: see offload/format.h */
	float *slots[OPTIMIZER_MAX_SLOTS];
	const float *gradient;
};

typedef void optimizer_kernel(const struct optimizer_constants *constants, size_t count,
			      const struct optimizer_arrays *arrays);

struct optimizer {
	const char *name;
	/* The state that it keeps, an fp32 per element and slot, which begins as zeros. */
	const char *slots[OPTIMIZER_MAX_SLOTS];
	unsigned slot_count;
	/* -EINVAL with a message if a group's choice makes no sense. */
	int (*check)(const struct optimizer_group *group, char *message, size_t size);
	/* learning_rate: the step's; update counts from 1: the number of this update of the unit. */
	void (*set)(const struct optimizer_group *group, double learning_rate, uint64_t update,
		    struct optimizer_constants *ret_constants);
	optimizer_kernel *kernels[MASTER_KINDS];
};

/* NULL: there is none of this name. level is at most simd_level(). */
const struct optimizer *optimizer_find(const char *name, enum simd_level level);

/* factor: what the summed gradients are multiplied with. */
void optimizer_set(const struct optimizer *optimizer, const struct optimizer_group *group,
		   double learning_rate, uint64_t update, float factor,
		   struct optimizer_constants *ret_constants);

#endif
