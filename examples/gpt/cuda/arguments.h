/* What the kernels of a GPU are told, each by one struct. Numbers are fp32 unless a format is named. */
#ifndef GPT_CUDA_ARGUMENTS_H
#define GPT_CUDA_ARGUMENTS_H

#include <stdint.h>

#include "examples/gpt/number.h"

#define GPT_THREADS 256 /* of a block */
#define GPT_WARP 32
/* Sums over rows are of so many, and then of those sums: always in the same order. */
#define GPT_CHUNK_ROWS 64

/* Of each row: y, and what it was made with. A warp for each row. */
struct gpt_norm {
	const float *x, *weight, *bias;
	void *y;
	float *mean, *inverse_deviation;
	uint64_t rows, width;
	enum number_format format; /* of y */
};

/* x_gradient += …. A warp for each row. */
struct gpt_norm_backward {
	const float *x, *weight, *mean, *inverse_deviation, *y_gradient;
	float *x_gradient;
	uint64_t rows, width;
};

/* Of each chunk of rows, and each column: the sum of the values; with x also that of values times normalized
 * x. A warp for each chunk and 32 columns. */
struct gpt_column_sums {
	const void *values;
	const float *x, *mean, *inverse_deviation; /* or NULL */
	float *sums, *products;			   /* [chunks][columns]; products: or NULL */
	uint64_t rows, columns;
	enum number_format format; /* of the values */
};

/* The sum of those. A lane for each column. */
struct gpt_column_totals {
	const float *sums;
	void *totals;
	uint64_t chunks, columns;
	enum number_format format; /* of the totals */
};

/* y = x (+ bias) (+ added). A lane for each element. */
struct gpt_finish {
	const float *x;
	const void *bias;   /* or NULL */
	const float *added; /* or NULL */
	void *y;
	uint64_t elements, width;
	enum number_format bias_format, format; /* format: of y */
};

/* x += bias, y = gelu(x). */
struct gpt_gelu {
	float *x;
	const void *bias; /* or NULL */
	void *y;
	uint64_t elements, width;
	enum number_format format; /* of bias and y */
};

/* x_gradient = y_gradient · gelu'(x) */
struct gpt_gelu_backward {
	const float *x, *y_gradient;
	void *x_gradient;
	uint64_t elements;
	enum number_format format; /* of x_gradient */
};

/* Causal, of [heads][length][length]: row i has i + 1 elements, and zeros. A warp for each row. */
struct gpt_softmax {
	const float *x;
	void *y;
	uint64_t rows, length;
	float scale;
	enum number_format format; /* of y */
};

struct gpt_softmax_backward {
	const void *y;
	const float *y_gradient;
	void *x_gradient;
	uint64_t rows, length;
	float scale;
	enum number_format format; /* of y and x_gradient */
};

/* x = the token's vector + the position's. A lane for each element. */
struct gpt_embed {
	const uint8_t *text; /* sequences of length + 1 bytes */
	const void *token, *position;
	float *x;
	uint64_t rows, width, length;
	enum number_format format; /* of token and position */
};

/* What the rows that used a vector add to its gradient, in their order. A warp for each vector, of 256 tokens
 * and then positions, and 32 columns. */
struct gpt_embed_backward {
	const uint8_t *text;
	const float *x_gradient, *head_gradient;
	void *token, *position;
	uint64_t rows, width, length;
	enum number_format format; /* of token and position */
};

/* Of each row of 256 logits the loss, and the logits' gradient: in their place, or, in a format of 16 bits,
 * in the first half of each row. A warp for each row. */
struct gpt_loss {
	const uint8_t *text;
	float *logits, *losses;
	uint64_t rows, length;
	float factor;		   /* of the gradient */
	enum number_format format; /* of the gradient */
};

/* What the driver loads; NULL: it was not built. */
const void *gpt_kernels_image(void);

#endif
