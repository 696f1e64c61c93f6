#include "examples/gpt/cuda/device.h"

/* Elements from one row of the logits' gradient to the next. */
static size_t gradient_stride(const struct layer_context *context)
{
	return MODEL_VOCABULARY * sizeof(float) / number_size(context->format);
}

void cuda_embedding_forward(const struct layer_context *context, const struct unit_view *parameters,
			    const struct batch *batch, float *x)
{
	struct gpt_embed with = { .text = batch->bytes,
				  .token = parameters->tensor[EMBEDDING_TOKEN],
				  .position = parameters->tensor[EMBEDDING_POSITION],
				  .x = x,
				  .rows = context->rows,
				  .width = context->shape.width,
				  .length = batch->length,
				  .format = context->format };

	cuda_run(cuda_of(context->compute), CUDA_EMBED, &with, cuda_warps(with.rows * with.width));
}

void cuda_embedding_backward(const struct layer_context *context, const struct batch *batch,
			     const float *x_gradient, const float *head_gradient,
			     const struct unit_view *gradients)
{
	struct gpt_embed_backward with = { .text = batch->bytes,
					   .x_gradient = x_gradient,
					   .head_gradient = head_gradient,
					   .token = gradients->tensor[EMBEDDING_TOKEN],
					   .position = gradients->tensor[EMBEDDING_POSITION],
					   .rows = context->rows,
					   .width = context->shape.width,
					   .length = batch->length,
					   .format = context->format };

	cuda_run(cuda_of(context->compute), CUDA_EMBED_BACKWARD, &with,
		 (MODEL_VOCABULARY + with.length) * cuda_warps(with.width));
}

void cuda_head_forward(const struct layer_context *context, const struct unit_view *parameters,
		       const float *x, float *logits)
{
	size_t width = context->shape.width;

	cuda_multiply(cuda_of(context->compute),
		      &(struct cuda_product){ .rows = context->rows,
					      .columns = MODEL_VOCABULARY,
					      .depth = width,
					      .format = context->format,
					      .a = { .data = x, .stride = width },
					      .b = { .data = parameters->tensor[EMBEDDING_TOKEN],
						     .stride = width,
						     .is_transposed = true },
					      .c = logits,
					      .c_format = NUMBER_FP32,
					      .c_stride = MODEL_VOCABULARY });
}

void cuda_head_loss(const struct layer_context *context, const struct batch *batch, float scale,
		    float *logits, float *losses)
{
	struct gpt_loss with = { .text = batch->bytes,
				 .logits = logits,
				 .losses = losses,
				 .rows = context->rows,
				 .length = batch->length,
				 .factor = scale / (float)context->rows,
				 .format = context->format };

	cuda_run(cuda_of(context->compute), CUDA_LOSS, &with, with.rows);
}

void cuda_head_backward(const struct layer_context *context, const struct unit_view *parameters,
			const float *x, const float *logits_gradient, float *x_gradient, float *head_gradient)
{
	struct cuda *cuda = cuda_of(context->compute);
	size_t width = context->shape.width, stride = gradient_stride(context);

	cuda_multiply(cuda, &(struct cuda_product){
				    .rows = MODEL_VOCABULARY,
				    .columns = width,
				    .depth = context->rows,
				    .format = context->format,
				    .a = { .data = logits_gradient, .stride = stride, .is_transposed = true },
				    .b = { .data = x, .stride = width },
				    .c = head_gradient,
				    .c_format = NUMBER_FP32,
				    .c_stride = width });
	cuda_multiply(cuda, &(struct cuda_product){
				    .rows = context->rows,
				    .columns = width,
				    .depth = MODEL_VOCABULARY,
				    .format = context->format,
				    .a = { .data = logits_gradient, .stride = stride },
				    .b = { .data = parameters->tensor[EMBEDDING_TOKEN], .stride = width },
				    .c = x_gradient,
				    .c_format = NUMBER_FP32,
				    .c_stride = width });
}
