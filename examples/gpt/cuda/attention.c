#include <math.h>

#include "examples/gpt/cuda/device.h"

/* One sequence after the other, all heads at once: so scores take the memory of one. */

static float scale_of(const struct attention_shape *shape)
{
	return 1.0f / sqrtf((float)(shape->width / shape->heads));
}

/* Queries, keys or values (0, 1, 2) of a sequence; or of their gradients. */
static struct cuda_matrix part_of(const struct layer_context *context, const void *qkv, size_t sequence,
				  size_t part)
{
	const struct attention_shape *shape = &context->shape;
	size_t first = sequence * shape->length * 3 * shape->width + part * shape->width;

	return (struct cuda_matrix){ .data = number_at((void *)qkv, context->format, first),
				     .stride = 3 * shape->width,
				     .step = shape->width / shape->heads };
}

static struct cuda_matrix output_of(const struct layer_context *context, const void *output, size_t sequence)
{
	const struct attention_shape *shape = &context->shape;

	return (struct cuda_matrix){ .data = number_at((void *)output, context->format,
						       sequence * shape->length * shape->width),
				     .stride = shape->width,
				     .step = shape->width / shape->heads };
}

static struct cuda_matrix scores_of(const struct layer_context *context, const void *scores)
{
	size_t length = context->shape.length;

	return (struct cuda_matrix){ .data = scores, .stride = length, .step = length * length };
}

static struct cuda_matrix transposed(struct cuda_matrix matrix)
{
	matrix.is_transposed = true;
	return matrix;
}

/* c[length][columns] = a · b, for each head. */
static void multiply(const struct layer_context *context, size_t columns, size_t depth, struct cuda_matrix a,
		     struct cuda_matrix b, struct cuda_matrix c, enum number_format c_format)
{
	cuda_multiply(cuda_of(context->compute), &(struct cuda_product){ .rows = context->shape.length,
									 .columns = columns,
									 .depth = depth,
									 .count = context->shape.heads,
									 .format = context->format,
									 .a = a,
									 .b = b,
									 .c = (void *)c.data,
									 .c_format = c_format,
									 .c_stride = c.stride,
									 .c_step = c.step });
}

static void compute_probabilities(const struct layer_context *context, const void *qkv, size_t sequence)
{
	struct cuda *cuda = cuda_of(context->compute);
	const struct attention_shape *shape = &context->shape;
	struct gpt_softmax softmax = { .x = cuda->space.scores,
				       .y = cuda->space.probabilities,
				       .rows = shape->heads * shape->length,
				       .length = shape->length,
				       .scale = scale_of(shape),
				       .format = context->format };

	multiply(context, shape->length, shape->width / shape->heads, part_of(context, qkv, sequence, 0),
		 transposed(part_of(context, qkv, sequence, 1)), scores_of(context, cuda->space.scores),
		 NUMBER_FP32);
	cuda_run(cuda, CUDA_SOFTMAX, &softmax, softmax.rows);
}

void cuda_attention_forward(const struct layer_context *context, const void *qkv, void *output)
{
	const struct attention_shape *shape = &context->shape;

	for (size_t i = 0; i < shape->batch; i++) {
		compute_probabilities(context, qkv, i);
		multiply(context, shape->width / shape->heads, shape->length,
			 scores_of(context, cuda_of(context->compute)->space.probabilities),
			 part_of(context, qkv, i, 2), output_of(context, output, i), context->format);
	}
}

static void sequence_backward(const struct layer_context *context, const void *qkv,
			      const void *output_gradient, size_t sequence)
{
	struct cuda *cuda = cuda_of(context->compute);
	const struct attention_shape *shape = &context->shape;
	size_t length = shape->length, size = shape->width / shape->heads;
	struct cuda_matrix output = output_of(context, output_gradient, sequence);
	struct cuda_matrix gradient = scores_of(context, cuda->space.score_gradient);
	void *to = cuda->space.qkv_gradient;
	struct gpt_softmax_backward softmax = { .y = cuda->space.probabilities,
						.y_gradient = cuda->space.scores,
						.x_gradient = cuda->space.score_gradient,
						.rows = shape->heads * length,
						.length = length,
						.scale = scale_of(shape),
						.format = context->format };

	compute_probabilities(context, qkv, sequence);
	multiply(context, size, length, transposed(scores_of(context, cuda->space.probabilities)), output,
		 part_of(context, to, sequence, 2), context->format);
	multiply(context, length, size, output, transposed(part_of(context, qkv, sequence, 2)),
		 scores_of(context, cuda->space.scores), NUMBER_FP32);
	cuda_run(cuda, CUDA_SOFTMAX_BACKWARD, &softmax, softmax.rows);
	multiply(context, size, length, gradient, part_of(context, qkv, sequence, 1),
		 part_of(context, to, sequence, 0), context->format);
	multiply(context, size, length, transposed(gradient), part_of(context, qkv, sequence, 0),
		 part_of(context, to, sequence, 1), context->format);
}

void cuda_attention_backward(const struct layer_context *context, const void *qkv,
			     const void *output_gradient)
{
	for (size_t i = 0; i < context->shape.batch; i++)
		sequence_backward(context, qkv, output_gradient, i);
}
