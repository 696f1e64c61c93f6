/* A GPU that computes a model. Whatever fails stays failed; the first failure has a message. */
#ifndef GPT_CUDA_DEVICE_H
#define GPT_CUDA_DEVICE_H

#include <stdint.h>

#include "compute.h"
#include "examples/gpt/cuda/arguments.h"
#include "examples/gpt/cuda/calls.h"

/* GPUs that are found; 0, with a message on stderr: none, and why. */
unsigned cuda_count(void);

/* The GPU of that number, as this process counts them. An error has been reported. */
int cuda_new(unsigned number, struct compute **ret_compute);
struct compute *cuda_free(struct compute *compute);
DEFINE_FREEP(struct compute *, cuda_free)

/* ---- Of the folder ---- */

enum cuda_kernel {
	CUDA_NORM,
	CUDA_NORM_BACKWARD,
	CUDA_COLUMN_SUMS,
	CUDA_COLUMN_TOTALS,
	CUDA_FINISH,
	CUDA_GELU,
	CUDA_GELU_BACKWARD,
	CUDA_SOFTMAX,
	CUDA_SOFTMAX_BACKWARD,
	CUDA_EMBED,
	CUDA_EMBED_BACKWARD,
	CUDA_LOSS,
	CUDA_KERNELS
};

/* Work space of one layer; what says "format" has the format of its matrices. */
struct cuda_space {
	float *sums;	      /* [rows][4 · width]: a product, before its bias */
	void *wide;	      /* format, [rows][4 · width] */
	void *qkv_gradient;   /* format, [rows][3 · width] */
	void *operand;	      /* format, [rows][width] */
	float *scores;	      /* [heads][length][length] */
	void *probabilities;  /* format, likewise */
	void *score_gradient; /* format, likewise */
	float *chunks;	      /* [2][chunks][4 · width] */
};

/* A unit that is gathered. Those that the backend has in host memory alone are copied to one of two places.
 */
struct cuda_unit {
	unsigned unit;
	bool is_used, is_copied;
};

struct cuda {
	struct compute compute;
	struct cuda_calls calls;
	struct blas_calls blas_calls;
	int device;
	char name[128];
	void *context, *module, *stream, *blas;
	void *functions[CUDA_KERNELS];
	int failure; /* 0: none so far */
	char problem[640];

	const struct model *model;
	struct cuda_space space;
	void *memory; /* of the space */
	struct cuda_unit units[2];
	void *places[2], *gradients;		 /* or NULL; of unit_bytes each */
	size_t unit_bytes;			 /* of the largest unit */
	bool has_told_units, has_told_gradients; /* that they are copied */
	bool copies_gradients;			 /* of the unit that is computed */
};

static inline struct cuda *cuda_of(struct compute *compute)
{
	return container_of(compute, struct cuda, compute);
}

/* Notes the failure of a call, unless there is an earlier one. Returns the error. */
int cuda_check(struct cuda *cuda, const char *call, int error);

/* So many warps of it. */
void cuda_run(struct cuda *cuda, enum cuda_kernel kernel, const void *arguments, uint64_t warps);
static inline uint64_t cuda_warps(uint64_t elements)
{
	return (elements + GPT_WARP - 1) / GPT_WARP;
}

/* As in matmul.h, but so many products of matrices that lie so many elements behind each other; c is written,
 * and a and b have one format. */
struct cuda_matrix {
	const void *data;
	size_t stride, step;
	bool is_transposed;
};

struct cuda_product {
	size_t rows, columns, depth, count;
	enum number_format format;
	struct cuda_matrix a, b;
	void *c;
	enum number_format c_format;
	size_t c_stride, c_step;
};

void cuda_multiply(struct cuda *cuda, const struct cuda_product *product);

/* units.c */
int cuda_gather(struct compute *compute, struct backend *backend, unsigned unit,
		struct unit_view *ret_parameters);
int cuda_release(struct compute *compute, struct backend *backend, unsigned unit);
int cuda_gradients(struct compute *compute, struct backend *backend, unsigned unit,
		   struct unit_view *ret_gradients);
int cuda_push(struct compute *compute, struct backend *backend, unsigned unit);
void cuda_abandon(struct compute *compute, struct backend *backend);
int cuda_copy(struct compute *compute, void *to, const void *from, size_t bytes);

/* layers.c, attention.c and ends.c */
void cuda_norm(const struct layer_context *context, const float *x, const float *weight, const float *bias,
	       float *y);
void cuda_norm_backward(const struct layer_context *context, const float *x, const float *weight,
			const float *y_gradient, float *x_gradient, float *weight_gradient,
			float *bias_gradient);
void cuda_layer_forward(const struct layer_context *context, const struct unit_view *parameters,
			const struct layer_activations *activations, const float *input, float *output);
void cuda_layer_backward(const struct layer_context *context, const struct unit_view *parameters,
			 const struct layer_activations *activations, const float *input, float *gradient,
			 const struct unit_view *gradients);
void cuda_attention_forward(const struct layer_context *context, const void *qkv, void *output);
/* The space's qkv_gradient, given that of the output, in the matrices' format. */
void cuda_attention_backward(const struct layer_context *context, const void *qkv,
			     const void *output_gradient);
void cuda_embedding_forward(const struct layer_context *context, const struct unit_view *parameters,
			    const struct batch *batch, float *x);
void cuda_embedding_backward(const struct layer_context *context, const struct batch *batch,
			     const float *x_gradient, const float *head_gradient,
			     const struct unit_view *gradients);
void cuda_head_forward(const struct layer_context *context, const struct unit_view *parameters,
		       const float *x, float *logits);
void cuda_head_loss(const struct layer_context *context, const struct batch *batch, float scale,
		    float *logits, float *losses);
void cuda_head_backward(const struct layer_context *context, const struct unit_view *parameters,
			const float *x, const float *logits_gradient, float *x_gradient,
			float *head_gradient);

#endif
