/* What the kernels are told: the same bytes on both sides. */
#ifndef TIERD_OFFLOAD_CUDA_KERNELS_ARGUMENTS_H
#define TIERD_OFFLOAD_CUDA_KERNELS_ARGUMENTS_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

#include "offload/optimizer/optimizer.h"

/* As an optimizer's kernel is (struct optimizer), over arrays in the GPU's memory that begin at multiples of
 * 16 bytes, of codes at multiples of 4. */
struct update_arguments {
	struct optimizer_constants constants;
	struct optimizer_arrays arrays;
	uint64_t count;	 /* elements */
	uint32_t master; /* enum master_kind */
	/* Gradients are as they were pushed: in the parameters' format, if that has 16 bits. */
	uint32_t is_narrow;
};

/* The sum of squares of each block, as norm_combine() gives it. */
struct norm_arguments {
	const float *values;
	double *sums;	/* one for each NORM_BLOCK_ELEMENTS, the last of which may be shorter */
	uint64_t count; /* elements */
};

static_assert(sizeof(void *) == 8 && sizeof(size_t) == 8 && sizeof(bool) == 1, "as on the GPU");
static_assert(sizeof(struct optimizer_constants) == 40 && offsetof(struct optimizer_constants, adam) == 4 &&
		      offsetof(struct sgd_constants, is_nesterov) == 17,
	      "as on the GPU");
static_assert(offsetof(struct optimizer_arrays, gradient) == 32 &&
		      offsetof(struct optimizer_arrays, noise) == 40 && sizeof(struct optimizer_arrays) == 56,
	      "as on the GPU");
static_assert(offsetof(struct update_arguments, arrays) == 40 &&
		      offsetof(struct update_arguments, count) == 96 &&
		      offsetof(struct update_arguments, master) == 104 &&
		      offsetof(struct update_arguments, is_narrow) == 108 &&
		      sizeof(struct update_arguments) == 112,
	      "as on the GPU");
static_assert(offsetof(struct norm_arguments, count) == 16 && sizeof(struct norm_arguments) == 24,
	      "as on the GPU");

/* Threads of a block of the grid: of whole warps, of enough that blocks fill a GPU. */
#define UPDATE_THREADS 256
#define UPDATE_GROUP 4 /* elements of each, but of codes, where a warp has a block of them */
#define NORM_THREADS 128

#endif
