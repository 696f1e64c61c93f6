#include "examples/gpt/cuda/device.h"

/* ---- Layer norm ---- */

static void norm_as(const struct layer_context *context, const float *x, const float *weight,
		    const float *bias, void *y)
{
	struct gpt_norm norm = { .x = x,
				 .weight = weight,
				 .bias = bias,
				 .y = y,
				 .mean = context->mean,
				 .inverse_deviation = context->inverse_deviation,
				 .rows = context->rows,
				 .width = context->shape.width,
				 .format = context->format };

	cuda_run(cuda_of(context->compute), CUDA_NORM, &norm, norm.rows);
}

void cuda_norm(const struct layer_context *context, const float *x, const float *weight, const float *bias,
	       float *y)
{
	norm_as(context, x, weight, bias, y);
}

static void add_chunks(struct cuda *cuda, const float *sums, void *totals, uint64_t rows, uint64_t columns,
		       enum number_format format)
{
	struct gpt_column_totals with = { .sums = sums,
					  .totals = totals,
					  .chunks = (rows + GPT_CHUNK_ROWS - 1) / GPT_CHUNK_ROWS,
					  .columns = columns,
					  .format = format };

	cuda_run(cuda, CUDA_COLUMN_TOTALS, &with, cuda_warps(columns));
}

static uint64_t column_warps(const struct gpt_column_sums *with)
{
	return (with->rows + GPT_CHUNK_ROWS - 1) / GPT_CHUNK_ROWS * cuda_warps(with->columns);
}

/* Mean and deviation are those of the norm that was computed last. */
void cuda_norm_backward(const struct layer_context *context, const float *x, const float *weight,
			const float *y_gradient, float *x_gradient, float *weight_gradient,
			float *bias_gradient)
{
	struct cuda *cuda = cuda_of(context->compute);
	size_t width = context->shape.width, chunks = (context->rows + GPT_CHUNK_ROWS - 1) / GPT_CHUNK_ROWS;
	struct gpt_norm_backward norm = { .x = x,
					  .weight = weight,
					  .mean = context->mean,
					  .inverse_deviation = context->inverse_deviation,
					  .y_gradient = y_gradient,
					  .x_gradient = x_gradient,
					  .rows = context->rows,
					  .width = width };
	struct gpt_column_sums columns = { .values = y_gradient,
					   .x = x,
					   .mean = context->mean,
					   .inverse_deviation = context->inverse_deviation,
					   .sums = cuda->space.chunks,
					   .products = cuda->space.chunks + chunks * width,
					   .rows = context->rows,
					   .columns = width,
					   .format = NUMBER_FP32 };

	cuda_run(cuda, CUDA_NORM_BACKWARD, &norm, norm.rows);
	cuda_run(cuda, CUDA_COLUMN_SUMS, &columns, column_warps(&columns));
	add_chunks(cuda, columns.products, weight_gradient, columns.rows, width, NUMBER_FP32);
	add_chunks(cuda, columns.sums, bias_gradient, columns.rows, width, NUMBER_FP32);
}

/* ---- Linear maps: weight[outputs][inputs] and a bias, which lies behind it in the unit ---- */

struct linear_sizes {
	size_t inputs, outputs;
};

/* The space's sums = x · weightᵀ, or where else. */
static void linear(const struct layer_context *context, struct linear_sizes sizes, const void *x,
		   const void *weight, float *y)
{
	cuda_multiply(cuda_of(context->compute),
		      &(struct cuda_product){
			      .rows = context->rows,
			      .columns = sizes.outputs,
			      .depth = sizes.inputs,
			      .format = context->format,
			      .a = { .data = x, .stride = sizes.inputs },
			      .b = { .data = weight, .stride = sizes.inputs, .is_transposed = true },
			      .c = y,
			      .c_format = NUMBER_FP32,
			      .c_stride = sizes.outputs });
}

/* The gradient of x, given that of y. */
static void linear_backward_to(const struct layer_context *context, struct linear_sizes sizes,
			       const void *y_gradient, const void *weight, void *x_gradient,
			       enum number_format format)
{
	cuda_multiply(cuda_of(context->compute),
		      &(struct cuda_product){ .rows = context->rows,
					      .columns = sizes.inputs,
					      .depth = sizes.outputs,
					      .format = context->format,
					      .a = { .data = y_gradient, .stride = sizes.outputs },
					      .b = { .data = weight, .stride = sizes.inputs },
					      .c = x_gradient,
					      .c_format = format,
					      .c_stride = sizes.inputs });
}

/* Those of weight and bias. */
static void linear_weights(const struct layer_context *context, struct linear_sizes sizes, const void *x,
			   const void *y_gradient, const struct unit_view *gradients, unsigned weight)
{
	struct cuda *cuda = cuda_of(context->compute);
	struct gpt_column_sums columns = { .values = y_gradient,
					   .sums = cuda->space.chunks,
					   .rows = context->rows,
					   .columns = sizes.outputs,
					   .format = context->format };

	cuda_multiply(cuda,
		      &(struct cuda_product){
			      .rows = sizes.outputs,
			      .columns = sizes.inputs,
			      .depth = context->rows,
			      .format = context->format,
			      .a = { .data = y_gradient, .stride = sizes.outputs, .is_transposed = true },
			      .b = { .data = x, .stride = sizes.inputs },
			      .c = gradients->tensor[weight],
			      .c_format = context->format,
			      .c_stride = sizes.inputs });
	cuda_run(cuda, CUDA_COLUMN_SUMS, &columns, column_warps(&columns));
	add_chunks(cuda, columns.sums, gradients->tensor[weight + 1], columns.rows, columns.columns,
		   context->format);
}

/* y = x (+ bias) (+ added) */
static void finish(const struct layer_context *context, size_t width, const float *x, const void *bias,
		   const float *added, void *y, enum number_format format)
{
	struct gpt_finish with = { .x = x,
				   .bias = bias,
				   .added = added,
				   .y = y,
				   .elements = context->rows * width,
				   .width = width,
				   .bias_format = context->format,
				   .format = format };

	cuda_run(cuda_of(context->compute), CUDA_FINISH, &with, cuda_warps(with.elements));
}

/* ---- A layer ---- */

static struct linear_sizes sizes_of(const struct layer_context *context, unsigned weight)
{
	size_t width = context->shape.width;

	switch (weight) {
	case LAYER_QKV_WEIGHT:
		return (struct linear_sizes){ width, 3 * width };
	case LAYER_UP_WEIGHT:
		return (struct linear_sizes){ width, LAYER_SLICES * width };
	case LAYER_DOWN_WEIGHT:
		return (struct linear_sizes){ LAYER_SLICES * width, width };
	default:
		return (struct linear_sizes){ width, width };
	}
}

static void attention_block(const struct layer_context *context, const struct unit_view *parameters,
			    const struct layer_activations *activations, const float *input)
{
	struct cuda *cuda = cuda_of(context->compute);
	size_t width = context->shape.width;

	norm_as(context, input, parameters->tensor[LAYER_NORM1_WEIGHT], parameters->tensor[LAYER_NORM1_BIAS],
		context->normal);
	linear(context, sizes_of(context, LAYER_QKV_WEIGHT), context->normal,
	       parameters->tensor[LAYER_QKV_WEIGHT], cuda->space.sums);
	finish(context, 3 * width, cuda->space.sums, parameters->tensor[LAYER_QKV_BIAS], NULL,
	       activations->qkv, context->format);
	cuda_attention_forward(context, activations->qkv, activations->attention);
	linear(context, sizes_of(context, LAYER_PROJECTION_WEIGHT), activations->attention,
	       parameters->tensor[LAYER_PROJECTION_WEIGHT], cuda->space.sums);
	finish(context, width, cuda->space.sums, parameters->tensor[LAYER_PROJECTION_BIAS], input,
	       activations->middle, NUMBER_FP32);
}

/* From what is between attention and MLP to the GELU, whose outputs the space has then; is_new: hidden is
 * computed, too. */
static void up(const struct layer_context *context, const struct unit_view *parameters,
	       const struct layer_activations *activations, bool is_new)
{
	struct cuda *cuda = cuda_of(context->compute);
	size_t wide = LAYER_SLICES * context->shape.width;
	struct gpt_gelu gelu = { .x = activations->hidden,
				 .bias = is_new ? parameters->tensor[LAYER_UP_BIAS] : NULL,
				 .y = cuda->space.wide,
				 .elements = context->rows * wide,
				 .width = wide,
				 .format = context->format };

	norm_as(context, activations->middle, parameters->tensor[LAYER_NORM2_WEIGHT],
		parameters->tensor[LAYER_NORM2_BIAS], context->normal);
	if (is_new)
		linear(context, sizes_of(context, LAYER_UP_WEIGHT), context->normal,
		       parameters->tensor[LAYER_UP_WEIGHT], activations->hidden);
	cuda_run(cuda, CUDA_GELU, &gelu, cuda_warps(gelu.elements));
}

void cuda_layer_forward(const struct layer_context *context, const struct unit_view *parameters,
			const struct layer_activations *activations, const float *input, float *output)
{
	struct cuda *cuda = cuda_of(context->compute);

	attention_block(context, parameters, activations, input);
	up(context, parameters, activations, true);
	linear(context, sizes_of(context, LAYER_DOWN_WEIGHT), cuda->space.wide,
	       parameters->tensor[LAYER_DOWN_WEIGHT], cuda->space.sums);
	finish(context, context->shape.width, cuda->space.sums, parameters->tensor[LAYER_DOWN_BIAS],
	       activations->middle, output, NUMBER_FP32);
}

/* The gradient in the format of what it is multiplied with. */
static const void *operand_of(const struct layer_context *context, const float *gradient)
{
	void *operand = cuda_of(context->compute)->space.operand;

	if (context->format == NUMBER_FP32)
		return gradient;
	finish(context, context->shape.width, gradient, NULL, NULL, operand, context->format);
	return operand;
}

static void mlp_backward(const struct layer_context *context, const struct unit_view *parameters,
			 const struct layer_activations *activations, float *gradient,
			 const struct unit_view *gradients)
{
	struct cuda *cuda = cuda_of(context->compute);
	const void *operand = operand_of(context, gradient);
	struct gpt_gelu_backward gelu = { .x = activations->hidden,
					  .y_gradient = cuda->space.sums,
					  .x_gradient = cuda->space.wide,
					  .elements = context->rows * LAYER_SLICES * context->shape.width,
					  .format = context->format };

	up(context, parameters, activations, !activations->is_kept);
	linear_weights(context, sizes_of(context, LAYER_DOWN_WEIGHT), cuda->space.wide, operand, gradients,
		       LAYER_DOWN_WEIGHT);
	linear_backward_to(context, sizes_of(context, LAYER_DOWN_WEIGHT), operand,
			   parameters->tensor[LAYER_DOWN_WEIGHT], cuda->space.sums, NUMBER_FP32);
	cuda_run(cuda, CUDA_GELU_BACKWARD, &gelu, cuda_warps(gelu.elements));
	linear_weights(context, sizes_of(context, LAYER_UP_WEIGHT), context->normal, cuda->space.wide,
		       gradients, LAYER_UP_WEIGHT);
	linear_backward_to(context, sizes_of(context, LAYER_UP_WEIGHT), cuda->space.wide,
			   parameters->tensor[LAYER_UP_WEIGHT], context->normal_gradient, NUMBER_FP32);
	cuda_norm_backward(context, activations->middle, parameters->tensor[LAYER_NORM2_WEIGHT],
			   context->normal_gradient, gradient, gradients->tensor[LAYER_NORM2_WEIGHT],
			   gradients->tensor[LAYER_NORM2_BIAS]);
}

static void attention_block_backward(const struct layer_context *context, const struct unit_view *parameters,
				     const struct layer_activations *activations, const float *input,
				     float *gradient, const struct unit_view *gradients)
{
	struct cuda *cuda = cuda_of(context->compute);
	const void *operand = operand_of(context, gradient);

	linear_weights(context, sizes_of(context, LAYER_PROJECTION_WEIGHT), activations->attention, operand,
		       gradients, LAYER_PROJECTION_WEIGHT);
	linear_backward_to(context, sizes_of(context, LAYER_PROJECTION_WEIGHT), operand,
			   parameters->tensor[LAYER_PROJECTION_WEIGHT], cuda->space.wide, context->format);
	cuda_attention_backward(context, activations->qkv, cuda->space.wide);
	norm_as(context, input, parameters->tensor[LAYER_NORM1_WEIGHT], parameters->tensor[LAYER_NORM1_BIAS],
		context->normal);
	linear_weights(context, sizes_of(context, LAYER_QKV_WEIGHT), context->normal,
		       cuda->space.qkv_gradient, gradients, LAYER_QKV_WEIGHT);
	linear_backward_to(context, sizes_of(context, LAYER_QKV_WEIGHT), cuda->space.qkv_gradient,
			   parameters->tensor[LAYER_QKV_WEIGHT], context->normal_gradient, NUMBER_FP32);
	cuda_norm_backward(context, input, parameters->tensor[LAYER_NORM1_WEIGHT], context->normal_gradient,
			   gradient, gradients->tensor[LAYER_NORM1_WEIGHT],
			   gradients->tensor[LAYER_NORM1_BIAS]);
}

void cuda_layer_backward(const struct layer_context *context, const struct unit_view *parameters,
			 const struct layer_activations *activations, const float *input, float *gradient,
			 const struct unit_view *gradients)
{
	if (!activations->is_kept)
		attention_block(context, parameters, activations, input);
	mlp_backward(context, parameters, activations, gradient, gradients);
	attention_block_backward(context, parameters, activations, input, gradient, gradients);
}
