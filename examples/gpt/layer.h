/* One transformer layer, forward and backward: x + attention(norm(x)), then that + MLP(norm(that)). */
#ifndef GPT_LAYER_H
#define GPT_LAYER_H

#include <stdbool.h>
#include <stddef.h>

#include "attention.h"
#include "model.h"
#include "team.h"

struct compute;

/* Where the computation happens. */
struct layer_context {
	struct compute *compute;
	struct team *team;	   /* its */
	enum number_format format; /* of weights, biases and their gradients; the norms' are fp32 */
	struct attention_shape shape;
	size_t rows; /* batch · length */

	/* Work space of any layer, [rows][width] each. What a layer's matrices are multiplied with has on a
	 * GPU their format. */
	float *normal, *normal_gradient, *activation;
	float *mean, *inverse_deviation; /* [rows] */
};

/* What the backward pass needs of a layer's forward pass, besides its input. Layers share one of these,
 * filled again in the backward pass, unless everything is kept. */
struct layer_activations {
	float *qkv;	  /* [rows][3 · width]; the backward pass overwrites it */
	float *attention; /* [rows][width]; it too */
	float *middle;	  /* [rows][width]: between attention and MLP */
	float *hidden;	  /* before the GELU: four slices of [rows][width], or, if not kept, compute's */
	bool is_kept;
};

/* The MLP's hidden layer, four times as wide as the model, is computed in slices as wide as the model. */
#define LAYER_SLICES 4

void layer_forward(const struct layer_context *context, const struct unit_view *parameters,
		   const struct layer_activations *activations, const float *input, float *output);

/* gradient, of the layer's output, becomes that of its input. All of gradients is written. */
void layer_backward(const struct layer_context *context, const struct unit_view *parameters,
		    const struct layer_activations *activations, const float *input, float *gradient,
		    const struct unit_view *gradients);

/* The layer norm over context->rows rows, and its backward pass, which adds to x_gradient. */
void layer_norm(const struct layer_context *context, const float *x, const float *weight, const float *bias,
		float *y);
void layer_norm_backward(const struct layer_context *context, const float *x, const float *weight,
			 const float *y_gradient, float *x_gradient, float *weight_gradient,
			 float *bias_gradient);

#endif
