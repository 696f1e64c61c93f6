/* The two ends of the model, which share the token embedding: bytes become vectors, and vectors become the
 * probabilities of the next byte. */
#ifndef GPT_EMBEDDING_H
#define GPT_EMBEDDING_H

#include <stdint.h>

#include "layer.h"

/* The sequences of a batch: of each, length bytes of input and one more; the target of a byte is its
 * successor. */
struct batch {
	const uint8_t *bytes; /* [batch][length + 1] */
	size_t length;
};

/* x[rows][width] = token embedding + position embedding */
void embedding_forward(const struct layer_context *context, const struct unit_view *parameters,
		       const struct batch *batch, float *x);
/* head_gradient[256][width]: what the head has added to the gradient of the token embedding. */
void embedding_backward(const struct layer_context *context, const struct batch *batch,
			const float *x_gradient, const float *head_gradient,
			const struct unit_view *gradients);

/* logits[rows][256] = x · token embeddingᵀ */
void head_forward(const struct layer_context *context, const struct unit_view *parameters, const float *x,
		  float *logits);
/* The cross entropy of each row, in nats. The logits become the gradient of the mean, times scale. */
void head_loss(const struct layer_context *context, const struct batch *batch, float scale, float *logits,
	       float *losses);
void head_backward(const struct layer_context *context, const struct unit_view *parameters, const float *x,
		   const float *logits_gradient, float *x_gradient, float *head_gradient);

#endif
