/* An optimizer: what it keeps for each parameter, and how it updates ranges of them, in the order of
 * docs/numerics.md: every level of vector instructions gives the same bits. */
#ifndef TIERD_OFFLOAD_OPTIMIZER_H
#define TIERD_OFFLOAD_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/simd.h"
#include "offload/optimizer/format.h"

#define OPTIMIZER_MAX_SLOTS 2

/* How slots are kept: docs/numerics.md, "Moments". */
enum moment_format { MOMENTS_FP32, MOMENTS_BF16, MOMENTS_INT8, MOMENT_FORMATS };

/* Of the last: blocks of values, from a tensor's first on. */
#define MOMENT_BLOCK 256

struct coded_moments {
	float scale;
	uint8_t codes[MOMENT_BLOCK];
};

/* What so many elements of a slot take: of a whole number of blocks, or up to the end of a tensor. */
static inline uint64_t moment_bytes(enum moment_format format, uint64_t elements)
{
	if (format == MOMENTS_INT8)
		return (elements + MOMENT_BLOCK - 1) / MOMENT_BLOCK * sizeof(struct coded_moments);
	return elements * (format == MOMENTS_FP32 ? sizeof(float) : sizeof(uint16_t));
}

/* For rounding, by counter: an element's at an update is the same, whoever owns it, and in whatever pieces it
 * is updated. */
struct moment_noise {
	uint32_t keys[2];
	uint64_t first; /* of the elements, within their tensor */
};

/* What a parameter group may choose; each optimizer looks at its own. */
struct optimizer_group {
	float learning_rate; /* multiplies the step's */
	float beta1, beta2, epsilon, weight_decay;
	float momentum, dampening;
	/* So wide that groups can be compared as bytes. */
	uint32_t is_nesterov;
	uint32_t moments; /* enum moment_format */
};

struct adam_constants {
	float beta1, beta1_rest, beta2, beta2_rest;
	float weight_decay, decay; /* of Adam, of AdamW */
	float step, scale, epsilon;
};

struct sgd_constants {
	float weight_decay, momentum, rest, rate;
	bool has_momentum, is_nesterov;
};

struct lion_constants {
	float beta1, beta1_rest, beta2, beta2_rest;
	float decay, rate;
};

/* What the kernels of an update need, computed in fp64 and rounded once. */
struct optimizer_constants {
	float factor; /* multiplies the gradient */
	union {
		struct adam_constants adam;
		struct sgd_constants sgd;
		struct lion_constants lion;
	};
};

/* All arrays have count elements, any count, aligned to one element, of slots in blocks to one block; fastest
 * where 64-byte aligned. They do not overlap. */
struct optimizer_arrays {
	void *parameter;		  /* in its format */
	void *master;			  /* what it takes beside that to know the fp32 master, or NULL: see
					     offload/optimizer/format.h */
	void *slots[OPTIMIZER_MAX_SLOTS]; /* in the kernel's format; NULL: the job does not keep it */
	const float *gradient;
	struct moment_noise noise; /* where that format takes some */
};

typedef void optimizer_kernel(const struct optimizer_constants *constants, size_t count,
			      const struct optimizer_arrays *arrays);

struct optimizer {
	const char *name;
	/* Owners read their gradients and write the new masters, which the kernels get in their place. */
	bool is_by_owner;
	/* The state that it keeps, a number per element and slot, which begins as zero. */
	const char *slots[OPTIMIZER_MAX_SLOTS];
	unsigned slot_count;
	/* Whether a group's choice makes use of the slots; NULL: each does. */
	bool (*uses_slots)(const struct optimizer_group *group);
	/* -EINVAL with a message if a group's choice makes no sense. */
	int (*check)(const struct optimizer_group *group, char *message, size_t size);
	/* learning_rate: the step's; update counts from 1: the number of this update of the unit. */
	void (*set)(const struct optimizer_group *group, double learning_rate, uint64_t update,
		    struct optimizer_constants *ret_constants);
	optimizer_kernel *kernels[MOMENT_FORMATS][MASTER_KINDS];
};

/* NULL: there is none of this name. level is at most simd_level(). */
const struct optimizer *optimizer_find(const char *name, enum simd_level level);

/* How many slots a job with these groups keeps: all, or none. */
unsigned optimizer_slots(const struct optimizer *optimizer, const struct optimizer_group *groups,
			 size_t count);

/* factor: what the summed gradients are multiplied with. */
void optimizer_set(const struct optimizer *optimizer, const struct optimizer_group *group,
		   double learning_rate, uint64_t update, float factor,
		   struct optimizer_constants *ret_constants);

/* The check of those that have betas. */
int optimizer_check_betas(const struct optimizer_group *group, char *message, size_t size);

#endif
