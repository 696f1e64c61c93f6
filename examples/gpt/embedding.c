#include "embedding.h"

#include <math.h>

#include "kernels.h"
#include "matmul.h"

struct ends {
	const struct layer_context *context;
	const struct unit_view *parameters;
	const struct unit_view *gradients;
	const struct batch *batch;
	float *x, *logits, *losses;
	float scale; /* of the loss */
	const float *x_gradient, *head_gradient;
};

static uint8_t byte_at(const struct batch *batch, size_t row, size_t ahead)
{
	return batch->bytes[row / batch->length * (batch->length + 1) + row % batch->length + ahead];
}

static void embed_row(void *argument, size_t row, void *scratch)
{
	const struct ends *ends = argument;
	size_t width = ends->context->shape.width;
	size_t token = byte_at(ends->batch, row, 0) * width, position = row % ends->batch->length * width;

	for (size_t i = 0; i < width; i++)
		ends->x[row * width + i] = number_load(ends->parameters->tensor[EMBEDDING_TOKEN],
						       ends->context->format, token + i) +
					   number_load(ends->parameters->tensor[EMBEDDING_POSITION],
						       ends->context->format, position + i);
}

void embedding_forward(const struct layer_context *context, const struct unit_view *parameters,
		       const struct batch *batch, float *x)
{
	struct ends ends = { .context = context, .parameters = parameters, .batch = batch, .x = x };

	team_run(context->team, context->rows, embed_row, &ends);
}

/* The index is a byte, or, beyond those, a position: the gradient of its vector is the sum over the rows that
 * used it, in their order, after what the head has made of it. */
static void embed_gradient(void *argument, size_t index, void *scratch)
{
	const struct ends *ends = argument;
	const struct layer_context *context = ends->context;
	bool is_token = index < MODEL_VOCABULARY;
	size_t width = context->shape.width, position = index - MODEL_VOCABULARY;
	void *gradient = ends->gradients->tensor[is_token ? EMBEDDING_TOKEN : EMBEDDING_POSITION];
	float *sum = scratch;

	if (is_token)
		memcpy(sum, ends->head_gradient + index * width, width * sizeof(float));
	else
		memset(sum, 0, width * sizeof(float));
	for (size_t row = 0; row < context->rows; row++) {
		if (is_token ? byte_at(ends->batch, row, 0) == index : row % ends->batch->length == position)
			for (size_t i = 0; i < width; i++)
				sum[i] += ends->x_gradient[row * width + i];
	}
	for (size_t i = 0; i < width; i++)
		number_store(gradient, context->format, (is_token ? index : position) * width + i, sum[i]);
}

void embedding_backward(const struct layer_context *context, const struct batch *batch,
			const float *x_gradient, const float *head_gradient,
			const struct unit_view *gradients)
{
	struct ends ends = {
		.context = context,
		.batch = batch,
		.x_gradient = x_gradient,
		.head_gradient = head_gradient,
		.gradients = gradients,
	};

	team_run(context->team, MODEL_VOCABULARY + batch->length, embed_gradient, &ends);
}

static struct matrix token_embedding(const struct layer_context *context, const struct unit_view *parameters,
				     bool is_transposed)
{
	return (struct matrix){ parameters->tensor[EMBEDDING_TOKEN], context->format, context->shape.width,
				is_transposed };
}

void head_forward(const struct layer_context *context, const struct unit_view *parameters, const float *x,
		  float *logits)
{
	matmul(context->team, &(struct product){
				      .rows = context->rows,
				      .columns = MODEL_VOCABULARY,
				      .depth = context->shape.width,
				      .a = { x, NUMBER_FP32, context->shape.width, false },
				      .b = token_embedding(context, parameters, true),
				      .c = logits,
				      .c_stride = MODEL_VOCABULARY,
			      });
}

static void row_loss(void *argument, size_t row, void *scratch)
{
	const struct ends *ends = argument;
	float *logits = ends->logits + row * MODEL_VOCABULARY;
	uint8_t target = byte_at(ends->batch, row, 1);
	float factor = ends->scale / (float)ends->context->rows;

	layer_kernels->softmax(MODEL_VOCABULARY, MODEL_VOCABULARY, 1.0f, logits);
	ends->losses[row] = -logf(logits[target]);
	logits[target] -= 1.0f;
	for (size_t i = 0; i < MODEL_VOCABULARY; i++)
		logits[i] *= factor;
}

void head_loss(const struct layer_context *context, const struct batch *batch, float scale, float *logits,
	       float *losses)
{
	struct ends ends = {
		.context = context, .batch = batch, .scale = scale, .logits = logits, .losses = losses
	};

	team_run(context->team, context->rows, row_loss, &ends);
}

void head_backward(const struct layer_context *context, const struct unit_view *parameters, const float *x,
		   const float *logits_gradient, float *x_gradient, float *head_gradient)
{
	size_t width = context->shape.width;

	matmul(context->team, &(struct product){
				      .rows = MODEL_VOCABULARY,
				      .columns = width,
				      .depth = context->rows,
				      .a = { logits_gradient, NUMBER_FP32, MODEL_VOCABULARY, true },
				      .b = { x, NUMBER_FP32, width, false },
				      .c = head_gradient,
				      .c_stride = width,
			      });
	matmul(context->team, &(struct product){
				      .rows = context->rows,
				      .columns = width,
				      .depth = MODEL_VOCABULARY,
				      .a = { logits_gradient, NUMBER_FP32, MODEL_VOCABULARY, false },
				      .b = token_embedding(context, parameters, false),
				      .c = x_gradient,
				      .c_stride = width,
			      });
}
