/* Causal self-attention over every sequence of a batch and every head. */
#ifndef GPT_ATTENTION_H
#define GPT_ATTENTION_H

#include <stddef.h>

#include "team.h"

/* A batch of sequences of equal length; their rows follow each other. */
struct attention_shape {
	size_t batch, length, width, heads;
};

size_t attention_scratch_bytes(size_t length, size_t width, size_t heads);

/* qkv[rows][3 · width] → output[rows][width]. */
void attention_forward(struct team *team, const struct attention_shape *shape, float *qkv, float *output);

/* The gradient of the output becomes that of qkv, in the place of qkv. The probabilities are computed again.
 */
void attention_backward(struct team *team, const struct attention_shape *shape, float *qkv,
			const float *output_gradient);

#endif
