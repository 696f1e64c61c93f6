/* Where a model is computed, on the processors or on a GPU: memory there, how a unit's parameters come there
 * and its gradients go from there, and the arithmetic.
 *
 * What a GPU is told it does later, in that order. So only download() waits for it, and what has failed
 * meanwhile comes with the next call that returns an error. */
#ifndef GPT_COMPUTE_H
#define GPT_COMPUTE_H

#include "backend.h"
#include "embedding.h"

struct compute_ops {
	/* Batches of that shape, or smaller ones, are coming; whatever else it takes memory for. */
	int (*prepare)(struct compute *compute, const struct model *model,
		       const struct layer_context *largest);
	int (*allocate)(struct compute *compute, size_t bytes, void **ret_memory);
	void (*free)(struct compute *compute, void *memory);
	/* From the processors' memory and to it. */
	int (*upload)(struct compute *compute, void *to, const void *from, size_t bytes);
	int (*download)(struct compute *compute, void *to, const void *from, size_t bytes);
	void (*clear)(struct compute *compute, void *memory, size_t bytes);

	/* As the backend's, of the same names, with addresses that the arithmetic below takes. */
	int (*gather)(struct compute *compute, struct backend *backend, unsigned unit,
		      struct unit_view *ret_parameters);
	int (*release)(struct compute *compute, struct backend *backend, unsigned unit);
	int (*gradients)(struct compute *compute, struct backend *backend, unsigned unit,
			 struct unit_view *ret_gradients);
	int (*push)(struct compute *compute, struct backend *backend, unsigned unit);
	/* Gives back what was gathered and not released: a step is given up. */
	void (*abandon)(struct compute *compute, struct backend *backend);

	/* embedding.h and layer.h say what they do. */
	void (*embedding_forward)(const struct layer_context *context, const struct unit_view *parameters,
				  const struct batch *batch, float *x);
	void (*embedding_backward)(const struct layer_context *context, const struct batch *batch,
				   const float *x_gradient, const float *head_gradient,
				   const struct unit_view *gradients);
	void (*norm)(const struct layer_context *context, const float *x, const float *weight,
		     const float *bias, float *y);
	void (*norm_backward)(const struct layer_context *context, const float *x, const float *weight,
			      const float *y_gradient, float *x_gradient, float *weight_gradient,
			      float *bias_gradient);
	void (*head_forward)(const struct layer_context *context, const struct unit_view *parameters,
			     const float *x, float *logits);
	void (*head_loss)(const struct layer_context *context, const struct batch *batch, float scale,
			  float *logits, float *losses);
	void (*head_backward)(const struct layer_context *context, const struct unit_view *parameters,
			      const float *x, const float *logits_gradient, float *x_gradient,
			      float *head_gradient);
	void (*layer_forward)(const struct layer_context *context, const struct unit_view *parameters,
			      const struct layer_activations *activations, const float *input, float *output);
	void (*layer_backward)(const struct layer_context *context, const struct unit_view *parameters,
			       const struct layer_activations *activations, const float *input,
			       float *gradient, const struct unit_view *gradients);
};

/* Embedded first in each one's own struct. */
struct compute {
	const struct compute_ops *ops;
	struct team *team;    /* of the processors */
	size_t hidden_slices; /* of the MLP's hidden layer, how many there are at once */
	const char *message;  /* why the last call failed, if not the backend knows; or NULL */
};

/* The processors, all threads of the team, which is the caller's. Nothing is to be freed. */
struct compute processors(struct team *team);

#endif
