/* Linear maps of activations, forward and backward. */
#ifndef GPT_LINEAR_H
#define GPT_LINEAR_H

#include "layer.h"

/* y = x · weightᵀ + bias, with weight[outputs][inputs] at the given stride. */
struct linear {
	size_t inputs, outputs;
	const void *weight;
	size_t stride;
	const void *bias; /* or NULL */
	void *weight_gradient, *bias_gradient;
};

void linear_forward(const struct layer_context *context, const struct linear *linear, const float *x,
		    float *y, bool is_added);

/* The gradient of x: y_gradient · weight. */
void linear_backward(const struct layer_context *context, const struct linear *linear,
		     const float *y_gradient, float *x_gradient, bool is_added);

/* The gradients of weight, y_gradientᵀ · x, and of the bias, if it has one. */
void linear_gradients(const struct layer_context *context, const struct linear *linear, const float *x,
		      const float *y_gradient);

#endif
