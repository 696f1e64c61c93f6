#include "attention.h"

#include <math.h>

#include "kernels.h"
#include "matmul.h"

struct attention {
	const struct attention_shape *shape;
	float *qkv;
	float *output;
	const float *output_gradient;
};

/* One head of one sequence. */
struct head {
	size_t length, padded, size; /* of the sequence, that rounded up for the kernels, of the head */
	size_t qkv_stride, output_stride;
	float *query, *key, *value, *output;
	const float *output_gradient;
	float scale;
	float *probabilities, *gradients; /* [length][padded] */
	float *query_gradient;		  /* [length][size] */
	void *block;
};

static size_t padded_length(size_t length)
{
	return (length + 15) / 16 * 16;
}

size_t attention_scratch_bytes(size_t length, size_t width, size_t heads)
{
	size_t elements = length * (2 * padded_length(length) + (width / heads + 15) / 16 * 16);

	return matmul_scratch_bytes() + elements * sizeof(float);
}

static struct head head_at(const struct attention *attention, size_t index, void *scratch)
{
	const struct attention_shape *shape = attention->shape;
	size_t first_row = index / shape->heads * shape->length;
	struct head head = {
		.length = shape->length,
		.padded = padded_length(shape->length),
		.size = shape->width / shape->heads,
		.qkv_stride = 3 * shape->width,
		.output_stride = shape->width,
		.block = scratch,
	};
	size_t column = index % shape->heads * head.size;

	head.query = attention->qkv + first_row * head.qkv_stride + column;
	head.key = head.query + shape->width;
	head.value = head.key + shape->width;
	if (attention->output)
		head.output = attention->output + first_row * head.output_stride + column;
	if (attention->output_gradient)
		head.output_gradient = attention->output_gradient + first_row * head.output_stride + column;
	head.scale = 1.0f / sqrtf((float)head.size);
	head.probabilities = (float *)((char *)scratch + matmul_scratch_bytes());
	head.gradients = head.probabilities + head.length * head.padded;
	head.query_gradient = head.gradients + head.length * head.padded;
	return head;
}

static void multiply(const struct head *head, size_t rows, size_t columns, size_t depth, struct matrix a,
		     struct matrix b, float *c, size_t c_stride)
{
	matmul_alone(
		&(struct product){
			.rows = rows,
			.columns = columns,
			.depth = depth,
			.a = a,
			.b = b,
			.c = c,
			.c_stride = c_stride,
		},
		head->block);
}

static struct matrix plain(const float *data, size_t stride)
{
	return (struct matrix){ .data = data, .stride = stride };
}

static struct matrix transposed(const float *data, size_t stride)
{
	return (struct matrix){ .data = data, .stride = stride, .is_transposed = true };
}

/* Each position sees itself and what came before. */
static void compute_probabilities(const struct head *head)
{
	multiply(head, head->length, head->length, head->size, plain(head->query, head->qkv_stride),
		 transposed(head->key, head->qkv_stride), head->probabilities, head->padded);
	for (size_t row = 0; row < head->length; row++)
		layer_kernels->softmax(row + 1, head->padded, head->scale,
				       head->probabilities + row * head->padded);
}

static void forward_head(void *argument, size_t index, void *scratch)
{
	struct head head = head_at(argument, index, scratch);

	compute_probabilities(&head);
	multiply(&head, head.length, head.size, head.length, plain(head.probabilities, head.padded),
		 plain(head.value, head.qkv_stride), head.output, head.output_stride);
}

void attention_forward(struct team *team, const struct attention_shape *shape, float *qkv, float *output)
{
	struct attention attention = { .shape = shape, .qkv = qkv, .output = output };

	team_run(team, shape->batch * shape->heads, forward_head, &attention);
}

static void clear_padding(const struct head *head)
{
	for (size_t row = 0; row < head->length; row++) {
		for (size_t i = head->length; i < head->padded; i++)
			head->gradients[row * head->padded + i] = 0.0f;
	}
}

/* Values, keys and queries give way to their gradients in an order in which nothing is overwritten that is
 * still needed. */
static void backward_head(void *argument, size_t index, void *scratch)
{
	struct head head = head_at(argument, index, scratch);
	size_t length = head.length, stride = head.qkv_stride;
	struct matrix output_gradient = plain(head.output_gradient, head.output_stride);

	compute_probabilities(&head);
	multiply(&head, length, length, head.size, output_gradient, transposed(head.value, stride),
		 head.gradients, head.padded);
	clear_padding(&head);
	multiply(&head, length, head.size, length, transposed(head.probabilities, head.padded),
		 output_gradient, head.value, stride);
	for (size_t row = 0; row < length; row++)
		layer_kernels->softmax_backward(head.padded, head.scale,
						head.probabilities + row * head.padded,
						head.gradients + row * head.padded);
	multiply(&head, length, head.size, length, plain(head.gradients, head.padded),
		 plain(head.key, stride), head.query_gradient, head.size);
	multiply(&head, length, head.size, length, transposed(head.gradients, head.padded),
		 plain(head.query, stride), head.key, stride);
	for (size_t row = 0; row < length; row++)
		memcpy(head.query + row * stride, head.query_gradient + row * head.size,
		       head.size * sizeof(float));
}

void attention_backward(struct team *team, const struct attention_shape *shape, float *qkv,
			const float *output_gradient)
{
	struct attention attention = { .shape = shape, .qkv = qkv, .output_gradient = output_gradient };

	team_run(team, shape->batch * shape->heads, backward_head, &attention);
}
