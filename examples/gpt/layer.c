#include "layer.h"

#include "kernels.h"
#include "linear.h"

/* Elements that a task of element-wise work takes. */
#define ELEMENTS_PER_TASK 8192

static struct linear linear_of(const struct layer_context *context, const struct unit_view *parameters,
			       const struct unit_view *gradients, unsigned weight, size_t outputs)
{
	return (struct linear){
		.inputs = context->shape.width,
		.outputs = outputs,
		.weight = parameters->tensor[weight],
		.stride = context->shape.width,
		.bias = parameters->tensor[weight + 1],
		.weight_gradient = gradients ? gradients->tensor[weight] : NULL,
		.bias_gradient = gradients ? gradients->tensor[weight + 1] : NULL,
	};
}

static void *advance(const struct layer_context *context, const void *data, size_t elements)
{
	return data ? number_at((void *)data, context->format, elements) : NULL;
}

/* The rows of the first MLP matrix that make slice `slice` of the hidden layer. */
static struct linear up_slice(const struct layer_context *context, const struct unit_view *parameters,
			      const struct unit_view *gradients, size_t slice)
{
	size_t width = context->shape.width;
	struct linear up = linear_of(context, parameters, gradients, LAYER_UP_WEIGHT, width);

	up.weight = advance(context, up.weight, slice * width * width);
	up.bias = advance(context, up.bias, slice * width);
	up.weight_gradient = advance(context, up.weight_gradient, slice * width * width);
	up.bias_gradient = advance(context, up.bias_gradient, slice * width);
	return up;
}

/* The columns of the second MLP matrix that take that slice; the bias comes with the first. */
static struct linear down_slice(const struct layer_context *context, const struct unit_view *parameters,
				const struct unit_view *gradients, size_t slice)
{
	size_t width = context->shape.width;
	struct linear down = linear_of(context, parameters, gradients, LAYER_DOWN_WEIGHT, width);

	down.stride = LAYER_SLICES * width;
	down.weight = advance(context, down.weight, slice * width);
	down.weight_gradient = advance(context, down.weight_gradient, slice * width);
	if (slice > 0)
		down.bias = NULL;
	return down;
}

struct gelu {
	size_t elements;
	const float *x;
	float *y;
	void (*apply)(size_t count, const float *x, float *y);
};

static void gelu_elements(void *argument, size_t index, void *scratch)
{
	const struct gelu *gelu = argument;
	size_t first = index * ELEMENTS_PER_TASK, count = gelu->elements - first;

	gelu->apply(count < ELEMENTS_PER_TASK ? count : ELEMENTS_PER_TASK, gelu->x + first, gelu->y + first);
}

static void apply_gelu(const struct layer_context *context,
		       void (*apply)(size_t count, const float *x, float *y), const float *x, float *y)
{
	struct gelu gelu = {
		.elements = context->rows * context->shape.width, .x = x, .y = y, .apply = apply
	};

	team_run(context->team, (gelu.elements + ELEMENTS_PER_TASK - 1) / ELEMENTS_PER_TASK, gelu_elements,
		 &gelu);
}

static void copy_rows(const struct layer_context *context, const float *from, float *to)
{
	memcpy(to, from, context->rows * context->shape.width * sizeof(float));
}

static float *hidden_slice(const struct layer_context *context, const struct layer_activations *activations,
			   size_t slice)
{
	return activations->hidden +
	       (activations->is_kept ? slice * context->rows * context->shape.width : 0);
}

static void attention_block(const struct layer_context *context, const struct unit_view *parameters,
			    const struct layer_activations *activations, const float *input)
{
	struct linear qkv = linear_of(context, parameters, NULL, LAYER_QKV_WEIGHT, 3 * context->shape.width);
	struct linear projection =
		linear_of(context, parameters, NULL, LAYER_PROJECTION_WEIGHT, context->shape.width);

	layer_norm(context, input, parameters->tensor[LAYER_NORM1_WEIGHT],
		   parameters->tensor[LAYER_NORM1_BIAS], context->normal);
	linear_forward(context, &qkv, context->normal, activations->qkv, false);
	attention_forward(context->team, &context->shape, activations->qkv, activations->attention);
	copy_rows(context, input, activations->middle);
	linear_forward(context, &projection, activations->attention, activations->middle, true);
}

void layer_forward(const struct layer_context *context, const struct unit_view *parameters,
		   const struct layer_activations *activations, const float *input, float *output)
{
	attention_block(context, parameters, activations, input);
	layer_norm(context, activations->middle, parameters->tensor[LAYER_NORM2_WEIGHT],
		   parameters->tensor[LAYER_NORM2_BIAS], context->normal);
	copy_rows(context, activations->middle, output);
	for (size_t slice = 0; slice < LAYER_SLICES; slice++) {
		struct linear up = up_slice(context, parameters, NULL, slice);
		struct linear down = down_slice(context, parameters, NULL, slice);
		float *hidden = hidden_slice(context, activations, slice);

		linear_forward(context, &up, context->normal, hidden, false);
		apply_gelu(context, layer_kernels->gelu, hidden, context->activation);
		linear_forward(context, &down, context->activation, output, true);
	}
}

static void mlp_slice_backward(const struct layer_context *context, const struct unit_view *parameters,
			       const struct layer_activations *activations, const float *gradient,
			       const struct unit_view *gradients, size_t slice)
{
	struct linear up = up_slice(context, parameters, gradients, slice);
	struct linear down = down_slice(context, parameters, gradients, slice);
	float *hidden = hidden_slice(context, activations, slice);

	if (!activations->is_kept)
		linear_forward(context, &up, context->normal, hidden, false);
	apply_gelu(context, layer_kernels->gelu, hidden, context->activation);
	linear_gradients(context, &down, context->activation, gradient);
	linear_backward(context, &down, gradient, context->activation, false);
	apply_gelu(context, layer_kernels->gelu_backward, hidden, context->activation);
	linear_gradients(context, &up, context->normal, context->activation);
	linear_backward(context, &up, context->activation, context->normal_gradient, slice > 0);
}

static void mlp_backward(const struct layer_context *context, const struct unit_view *parameters,
			 const struct layer_activations *activations, float *gradient,
			 const struct unit_view *gradients)
{
	const float *weight = parameters->tensor[LAYER_NORM2_WEIGHT];

	layer_norm(context, activations->middle, weight, parameters->tensor[LAYER_NORM2_BIAS],
		   context->normal);
	for (size_t slice = 0; slice < LAYER_SLICES; slice++)
		mlp_slice_backward(context, parameters, activations, gradient, gradients, slice);
	layer_norm_backward(context, activations->middle, weight, context->normal_gradient, gradient,
			    gradients->tensor[LAYER_NORM2_WEIGHT], gradients->tensor[LAYER_NORM2_BIAS]);
}

/* The attention's output is dead once the projection has its gradients; that of its gradient takes its place.
 */
static void attention_block_backward(const struct layer_context *context, const struct unit_view *parameters,
				     const struct layer_activations *activations, const float *input,
				     float *gradient, const struct unit_view *gradients)
{
	struct linear qkv =
		linear_of(context, parameters, gradients, LAYER_QKV_WEIGHT, 3 * context->shape.width);
	struct linear projection =
		linear_of(context, parameters, gradients, LAYER_PROJECTION_WEIGHT, context->shape.width);
	const float *weight = parameters->tensor[LAYER_NORM1_WEIGHT];

	linear_gradients(context, &projection, activations->attention, gradient);
	linear_backward(context, &projection, gradient, activations->attention, false);
	attention_backward(context->team, &context->shape, activations->qkv, activations->attention);
	layer_norm(context, input, weight, parameters->tensor[LAYER_NORM1_BIAS], context->normal);
	linear_gradients(context, &qkv, context->normal, activations->qkv);
	linear_backward(context, &qkv, activations->qkv, context->normal_gradient, false);
	layer_norm_backward(context, input, weight, context->normal_gradient, gradient,
			    gradients->tensor[LAYER_NORM1_WEIGHT], gradients->tensor[LAYER_NORM1_BIAS]);
}

void layer_backward(const struct layer_context *context, const struct unit_view *parameters,
		    const struct layer_activations *activations, const float *input, float *gradient,
		    const struct unit_view *gradients)
{
	if (!activations->is_kept)
		attention_block(context, parameters, activations, input);
	mlp_backward(context, parameters, activations, gradient, gradients);
	attention_block_backward(context, parameters, activations, input, gradient, gradients);
}
