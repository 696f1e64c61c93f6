/* Initial values of tensors by counter: any piece can be computed alone, and is the same however the tensor
 * is cut. */
#ifndef TIERD_OFFLOAD_INITIALIZER_H
#define TIERD_OFFLOAD_INITIALIZER_H

#include <stddef.h>
#include <stdint.h>

enum initializer_kind { INITIALIZER_ZEROS, INITIALIZER_ONES, INITIALIZER_NORMAL, INITIALIZER_UNIFORM };

struct initializer {
	enum initializer_kind kind;
	double a, b; /* mean and deviation; low and high */
	uint64_t seed;
	uint64_t tensor; /* initializer_tensor() of its name */
};

uint64_t initializer_tensor(const char *name);

/* Elements first … first + count - 1 of the tensor, as fp32. */
void initializer_fill(const struct initializer *initializer, uint64_t first, size_t count, float *ret_values);

/* The generator beneath: Philox4x32 of ten rounds. */
void initializer_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t ret_words[4]);

#endif
