#include "kernels.h"
#include "layer.h"

/* Tasks of this size are worth a thread. */
#define ROWS_PER_TASK 16
#define COLUMNS_PER_TASK 64

struct norm {
	const struct layer_context *context;
	const float *x, *weight, *bias, *y_gradient;
	float *y, *x_gradient, *weight_gradient, *bias_gradient;
};

static size_t row_tasks(const struct layer_context *context)
{
	return (context->rows + ROWS_PER_TASK - 1) / ROWS_PER_TASK;
}

static size_t rows_end(const struct layer_context *context, size_t index)
{
	size_t end = (index + 1) * ROWS_PER_TASK;

	return end < context->rows ? end : context->rows;
}

static void measure(const struct norm *norm, size_t row)
{
	const struct layer_context *context = norm->context;

	layer_kernels->norm_statistics(context->shape.width, norm->x + row * context->shape.width,
				       &context->mean[row], &context->inverse_deviation[row]);
}

static void norm_rows(void *argument, size_t index, void *scratch)
{
	const struct norm *norm = argument;
	const struct layer_context *context = norm->context;
	size_t width = context->shape.width;

	for (size_t row = index * ROWS_PER_TASK; row < rows_end(context, index); row++) {
		measure(norm, row);
		layer_kernels->norm(width, norm->x + row * width, context->mean[row],
				    context->inverse_deviation[row], norm->weight, norm->bias,
				    norm->y + row * width);
	}
}

void layer_norm(const struct layer_context *context, const float *x, const float *weight, const float *bias,
		float *y)
{
	struct norm norm = { .context = context, .x = x, .weight = weight, .bias = bias, .y = y };

	team_run(context->team, row_tasks(context), norm_rows, &norm);
}

static void norm_rows_backward(void *argument, size_t index, void *scratch)
{
	const struct norm *norm = argument;
	const struct layer_context *context = norm->context;
	size_t width = context->shape.width;

	for (size_t row = index * ROWS_PER_TASK; row < rows_end(context, index); row++) {
		measure(norm, row);
		layer_kernels->norm_backward(width, norm->x + row * width, context->mean[row],
					     context->inverse_deviation[row], norm->weight,
					     norm->y_gradient + row * width, norm->x_gradient + row * width);
	}
}

static void norm_columns_backward(void *argument, size_t index, void *scratch)
{
	const struct norm *norm = argument;
	const struct layer_context *context = norm->context;
	size_t width = context->shape.width, column = index * COLUMNS_PER_TASK;
	size_t count = width - column < COLUMNS_PER_TASK ? width - column : COLUMNS_PER_TASK;

	layer_kernels->norm_gradients(context->rows, width, count, norm->x + column, context->mean,
				      context->inverse_deviation, norm->y_gradient + column,
				      norm->weight_gradient + column, norm->bias_gradient + column);
}

void layer_norm_backward(const struct layer_context *context, const float *x, const float *weight,
			 const float *y_gradient, float *x_gradient, float *weight_gradient,
			 float *bias_gradient)
{
	struct norm norm = {
		.context = context,
		.x = x,
		.weight = weight,
		.y_gradient = y_gradient,
		.x_gradient = x_gradient,
		.weight_gradient = weight_gradient,
		.bias_gradient = bias_gradient,
	};

	team_run(context->team, row_tasks(context), norm_rows_backward, &norm);
	team_run(context->team, (context->shape.width + COLUMNS_PER_TASK - 1) / COLUMNS_PER_TASK,
		 norm_columns_backward, &norm);
}
