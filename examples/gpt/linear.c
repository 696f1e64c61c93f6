#include "linear.h"

#include "kernels.h"
#include "matmul.h"

#define COLUMNS_PER_TASK 64

static struct matrix activations_matrix(const float *data, size_t stride)
{
	return (struct matrix){ .data = data, .stride = stride };
}

void linear_forward(const struct layer_context *context, const struct linear *linear, const float *x,
		    float *y, bool is_added)
{
	matmul(context->team, &(struct product){
				      .rows = context->rows,
				      .columns = linear->outputs,
				      .depth = linear->inputs,
				      .a = activations_matrix(x, linear->inputs),
				      .b = { linear->weight, context->format, linear->stride, true },
				      .c = y,
				      .c_stride = linear->outputs,
				      .is_added = is_added,
				      .bias = linear->bias,
				      .bias_format = context->format,
			      });
}

void linear_backward(const struct layer_context *context, const struct linear *linear,
		     const float *y_gradient, float *x_gradient, bool is_added)
{
	matmul(context->team, &(struct product){
				      .rows = context->rows,
				      .columns = linear->inputs,
				      .depth = linear->outputs,
				      .a = activations_matrix(y_gradient, linear->outputs),
				      .b = { linear->weight, context->format, linear->stride, false },
				      .c = x_gradient,
				      .c_stride = linear->inputs,
				      .is_added = is_added,
			      });
}

struct row_sum {
	const struct layer_context *context;
	const struct linear *linear;
	const float *y_gradient;
};

static void sum_columns(void *argument, size_t index, void *scratch)
{
	const struct row_sum *sum = argument;
	size_t column = index * COLUMNS_PER_TASK, outputs = sum->linear->outputs;
	size_t count = outputs - column < COLUMNS_PER_TASK ? outputs - column : COLUMNS_PER_TASK;
	float sums[COLUMNS_PER_TASK];

	layer_kernels->sum_rows(sum->context->rows, outputs, count, sum->y_gradient + column, sums);
	for (size_t i = 0; i < count; i++)
		number_store(sum->linear->bias_gradient, sum->context->format, column + i, sums[i]);
}

void linear_gradients(const struct layer_context *context, const struct linear *linear, const float *x,
		      const float *y_gradient)
{
	struct row_sum sum = { .context = context, .linear = linear, .y_gradient = y_gradient };

	matmul(context->team, &(struct product){
				      .rows = linear->outputs,
				      .columns = linear->inputs,
				      .depth = context->rows,
				      .a = { y_gradient, NUMBER_FP32, linear->outputs, true },
				      .b = activations_matrix(x, linear->inputs),
				      .c = linear->weight_gradient,
				      .c_format = context->format,
				      .c_stride = linear->stride,
			      });
	if (linear->bias)
		team_run(context->team, (linear->outputs + COLUMNS_PER_TASK - 1) / COLUMNS_PER_TASK,
			 sum_columns, &sum);
}
