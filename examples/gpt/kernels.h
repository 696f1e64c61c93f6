/* The inner loops: compiled once for each set of vector instructions, chosen at run time, and equal to the
 * bit, because every sum has a written order and fma appears only where written. */
#ifndef GPT_KERNELS_H
#define GPT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "number.h"
#include "options.h"

/* The largest tile of a matrix product that is kept in registers. */
#define KERNEL_MAX_TILE_ROWS 12
#define KERNEL_MAX_TILE_COLUMNS 32
#define KERNEL_SLACK 16

struct matmul_kernels {
	size_t tile_rows, tile_columns;

	/* c[tile_rows][tile_columns] += a · b, where a and b are panels: a[depth][tile_rows],
	 * b[depth][tile_columns]. Each element is a chain of fma in the order of depth. */
	void (*tile)(size_t depth, const float *a, const float *b, float *c);

	/* Copies count vectors of a matrix, each `depth` long, into a panel out[depth][width]; the rest of
	 * the width is zero. pack_rows: the vectors are rows; pack_columns: they are columns. */
	void (*pack_rows)(const void *data, enum number_format format, size_t stride, size_t count,
			  size_t depth, size_t width, float *out);
	void (*pack_columns)(const void *data, enum number_format format, size_t stride, size_t count,
			     size_t depth, size_t width, float *out);

	/* c = sums (+ bias, unless NULL) (+ c), for at most KERNEL_MAX_TILE_COLUMNS elements. */
	void (*finish)(size_t count, const float *sums, const void *bias, enum number_format bias_format,
		       bool is_added, void *c, enum number_format c_format);
};

/* Rows are of fp32 and as long as the model is wide, unless they say otherwise. */
struct layer_kernels {
	void (*norm_statistics)(size_t width, const float *x, float *ret_mean, float *ret_inverse_deviation);
	void (*norm)(size_t width, const float *x, float mean, float inverse_deviation, const float *weight,
		     const float *bias, float *y);
	/* dx += the gradient of the norm's input, given that of its output. */
	void (*norm_backward)(size_t width, const float *x, float mean, float inverse_deviation,
			      const float *weight, const float *dy, float *dx);
	/* dweight and dbias: the sums of dy · normalized x and of dy over the rows, of `count` columns. */
	void (*norm_gradients)(size_t rows, size_t stride, size_t count, const float *x, const float *mean,
			       const float *inverse_deviation, const float *dy, float *dweight, float *dbias);
	void (*sum_rows)(size_t rows, size_t stride, size_t count, const float *x, float *sum);

	void (*gelu)(size_t count, const float *x, float *y);
	/* dy becomes dx. */
	void (*gelu_backward)(size_t count, const float *x, float *dy);

	/* The softmax of scale · x over the first count elements; zeros follow up to padded. In place. */
	void (*softmax)(size_t count, size_t padded, float scale, float *x);
	/* dp becomes the gradient of x in softmax(scale · x) = p. */
	void (*softmax_backward)(size_t padded, float scale, const float *p, float *dp);
};

/* The reference's share of docs/numerics.md. */
struct update_constants {
	float factor, beta1, beta2, c1, c2, weight_decay, decay, rate, step, scale, epsilon, momentum;
};

#define KERNEL_SLOTS 2

typedef void update_kernel(const struct update_constants *constants, size_t count, const float *gradients,
			   float *const slots[KERNEL_SLOTS], float *master);

struct update_kernels {
	/* Between fp32 and a 16-bit format. */
	void (*widen)(enum number_format format, size_t count, const uint16_t *values, float *ret_values);
	void (*narrow)(enum number_format format, size_t count, const float *values, uint16_t *ret_values);
	void (*add)(size_t count, const float *values, float *sum);
	double (*sum_of_squares)(size_t count, const float *values);
	update_kernel *updates[TIERD_LION + 1];
};

extern const struct matmul_kernels *matmul_kernels;
extern const struct layer_kernels *layer_kernels;
extern const struct update_kernels *update_kernels;

/* Chooses the best kernels of this processor, or those that $TIERD_SIMD names. */
void kernels_choose(void);

/* The name of this compilation's table. */
#define KERNEL_PASTE(name, level) name##_##level
#define KERNEL_EXPAND(name, level) KERNEL_PASTE(name, level)
#define KERNEL_TABLE(name) KERNEL_EXPAND(name, KERNEL_LEVEL)

#define KERNEL_DECLARE(level)                                                                                \
	extern const struct matmul_kernels matmul_kernels_##level;                                           \
	extern const struct layer_kernels layer_kernels_##level;                                             \
	extern const struct update_kernels update_kernels_##level

KERNEL_DECLARE(scalar);
#ifdef GPT_X86
KERNEL_DECLARE(avx2);
KERNEL_DECLARE(avx512);
#endif

#endif
