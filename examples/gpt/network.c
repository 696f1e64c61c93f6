#include "network.h"

#include <errno.h>

#include "matmul.h"

struct network {
	const struct model *model;
	size_t batch; /* sequences at most */
	bool keeps_activations;
	struct layer_context context;
	struct layer_activations *activations; /* of each layer; the same for all unless they are kept */
	float *inputs;			       /* [layers + 1][rows][width]: of each layer and of the head */
	float *gradient;		       /* [rows][width]: of the activations, on its way down */
	float *head_gradient; /* [256][width]: of the token embedding, until its other part is known */
	float *logits, *losses;
	float *memory; /* all of the above and the context's work space */
	uint64_t bytes;
};

size_t network_scratch_bytes(const struct model_shape *shape)
{
	size_t attention = attention_scratch_bytes(shape->context, shape->width, shape->heads);
	size_t row = shape->width * sizeof(float);

	return attention > row ? attention : row;
}

/* Counts the elements of the arrays, and, once there is memory, tells where they lie. */
struct places {
	float *memory; /* or NULL */
	uint64_t used;
};

static float *take(struct places *places, uint64_t elements)
{
	float *taken = places->memory ? places->memory + places->used : NULL;

	places->used += (elements + 15) / 16 * 16;
	return taken;
}

static struct layer_activations take_activations(const struct network *network, struct places *places)
{
	uint64_t elements = network->context.rows * network->context.shape.width;

	return (struct layer_activations){
		.qkv = take(places, 3 * elements),
		.attention = take(places, elements),
		.middle = take(places, elements),
		.hidden = take(places, (network->keeps_activations ? LAYER_SLICES : 1) * elements),
		.is_kept = network->keeps_activations,
	};
}

/* Gives every array its place; returns the elements of all. */
static uint64_t place_arrays(struct network *network)
{
	struct places places = { .memory = network->memory };
	struct layer_context *context = &network->context;
	uint64_t layers = network->model->shape.layers, rows = context->rows;
	uint64_t elements = rows * context->shape.width;

	for (uint64_t layer = 0; layer < layers; layer++)
		network->activations[layer] = layer > 0 && !network->keeps_activations
						      ? network->activations[0]
						      : take_activations(network, &places);
	network->inputs = take(&places, (layers + 1) * elements);
	network->gradient = take(&places, elements);
	network->head_gradient = take(&places, MODEL_VOCABULARY * context->shape.width);
	network->logits = take(&places, rows * MODEL_VOCABULARY);
	network->losses = take(&places, rows);
	context->normal = take(&places, elements);
	context->normal_gradient = take(&places, elements);
	context->activation = take(&places, elements);
	context->mean = take(&places, rows);
	context->inverse_deviation = take(&places, rows);
	return places.used;
}

static void set_shape(struct network *network, size_t batch, size_t length)
{
	network->context.shape.batch = batch;
	network->context.shape.length = length;
	network->context.rows = batch * length;
}

int network_new(const struct model *model, size_t batch, bool keeps_activations, struct team *team,
		struct network **ret_network)
{
	_cleanup_(network_freep) struct network *network = calloc(1, sizeof(*network));

	if (!network)
		return -ENOMEM;
	network->model = model;
	network->batch = batch;
	network->keeps_activations = keeps_activations;
	network->context.team = team;
	network->context.format = model->shape.format;
	network->context.shape.width = model->shape.width;
	network->context.shape.heads = model->shape.heads;
	set_shape(network, batch, model->shape.context);
	network->activations = calloc(model->shape.layers, sizeof(network->activations[0]));
	if (!network->activations)
		return -ENOMEM;
	network->bytes = place_arrays(network) * sizeof(float);
	network->memory = aligned_alloc(64, network->bytes);
	if (!network->memory)
		return -ENOMEM;
	place_arrays(network);
	*ret_network = TAKE_PTR(network);
	return 0;
}

struct network *network_free(struct network *network)
{
	if (network) {
		free(network->memory);
		free(network->activations);
	}
	free(network);
	return NULL;
}

uint64_t network_bytes(const struct network *network)
{
	return network->bytes;
}

static float *input_of(const struct network *network, uint64_t layer)
{
	return network->inputs + layer * network->context.rows * network->context.shape.width;
}

/* ---- Forward ---- */

static int embed(struct network *network, struct backend *backend, const struct batch *batch)
{
	unsigned unit = model_embedding(network->model);
	struct unit_view parameters;
	int r = backend_gather(backend, unit, &parameters);

	if (r < 0)
		return r;
	embedding_forward(&network->context, &parameters, batch, input_of(network, 0));
	return backend_release(backend, unit);
}

static int forward_layer(struct network *network, struct backend *backend, unsigned layer)
{
	unsigned unit = model_layer(network->model, layer);
	struct unit_view parameters;
	int r = backend_gather(backend, unit, &parameters);

	if (r < 0)
		return r;
	layer_forward(&network->context, &parameters, &network->activations[layer], input_of(network, layer),
		      input_of(network, layer + 1));
	return backend_release(backend, unit);
}

static int forward(struct network *network, struct backend *backend, const struct batch *batch)
{
	int r = embed(network, backend, batch);

	for (unsigned layer = 0; r == 0 && layer < network->model->shape.layers; layer++)
		r = forward_layer(network, backend, layer);
	return r;
}

/* Both units that the head needs. */
struct head_views {
	struct unit_view final, embedding;
};

static int gather_head(struct network *network, struct backend *backend, struct head_views *ret_views)
{
	int r = backend_gather(backend, model_final(network->model), &ret_views->final);

	if (r < 0)
		return r;
	return backend_gather(backend, model_embedding(network->model), &ret_views->embedding);
}

static int release_head(struct network *network, struct backend *backend)
{
	int r = backend_release(backend, model_embedding(network->model));

	if (r < 0)
		return r;
	return backend_release(backend, model_final(network->model));
}

static void compute_logits(struct network *network, const struct head_views *views)
{
	struct layer_context *context = &network->context;

	layer_norm(context, input_of(network, network->model->shape.layers),
		   views->final.tensor[FINAL_NORM_WEIGHT], views->final.tensor[FINAL_NORM_BIAS],
		   context->normal);
	head_forward(context, &views->embedding, context->normal, network->logits);
}

/* Forward, up to the logits, leaving the head's units released. */
static int forward_to_logits(struct network *network, struct backend *backend, const struct batch *batch)
{
	struct head_views views;
	int r = forward(network, backend, batch);

	if (r < 0)
		return r;
	r = gather_head(network, backend, &views);
	if (r < 0)
		return r;
	compute_logits(network, &views);
	return release_head(network, backend);
}

/* ---- Backward ---- */

static int push_final(struct network *network, struct backend *backend, const struct head_views *views)
{
	struct layer_context *context = &network->context;
	unsigned unit = model_final(network->model);
	struct unit_view gradients;
	int r = backend_gradients(backend, unit, &gradients);

	if (r < 0)
		return r;
	memset(network->gradient, 0, context->rows * context->shape.width * sizeof(float));
	layer_norm_backward(context, input_of(network, network->model->shape.layers),
			    views->final.tensor[FINAL_NORM_WEIGHT], context->normal_gradient,
			    network->gradient, gradients.tensor[FINAL_NORM_WEIGHT],
			    gradients.tensor[FINAL_NORM_BIAS]);
	return backend_push(backend, unit);
}

static int train_head(struct network *network, struct backend *backend, const struct batch *batch,
		      double *ret_loss)
{
	struct layer_context *context = &network->context;
	struct head_views views;
	int r = gather_head(network, backend, &views);

	if (r < 0)
		return r;
	compute_logits(network, &views);
	*ret_loss = head_loss(context, batch, backend->loss_scale, network->logits, network->losses);
	head_backward(context, &views.embedding, context->normal, network->logits, context->normal_gradient,
		      network->head_gradient);
	r = push_final(network, backend, &views);
	if (r < 0)
		return r;
	return release_head(network, backend);
}

static int backward_layer(struct network *network, struct backend *backend, unsigned layer)
{
	unsigned unit = model_layer(network->model, layer);
	struct unit_view parameters, gradients;
	int r = backend_gather(backend, unit, &parameters);

	if (r < 0)
		return r;
	r = backend_gradients(backend, unit, &gradients);
	if (r < 0)
		return r;
	layer_backward(&network->context, &parameters, &network->activations[layer], input_of(network, layer),
		       network->gradient, &gradients);
	r = backend_push(backend, unit);
	if (r < 0)
		return r;
	return backend_release(backend, unit);
}

static int push_embedding(struct network *network, struct backend *backend, const struct batch *batch)
{
	unsigned unit = model_embedding(network->model);
	struct unit_view gradients;
	int r = backend_gradients(backend, unit, &gradients);

	if (r < 0)
		return r;
	embedding_backward(&network->context, batch, network->gradient, network->head_gradient, &gradients);
	return backend_push(backend, unit);
}

/* ---- Uses ---- */

static struct batch full_batch(struct network *network, const uint8_t *bytes)
{
	set_shape(network, network->batch, network->model->shape.context);
	return (struct batch){ .bytes = bytes, .length = network->model->shape.context };
}

int network_train(struct network *network, struct backend *backend, const uint8_t *bytes, double *ret_loss)
{
	struct batch batch = full_batch(network, bytes);
	int r = forward(network, backend, &batch);

	if (r < 0)
		return r;
	r = train_head(network, backend, &batch, ret_loss);
	for (unsigned layer = (unsigned)network->model->shape.layers; r == 0 && layer > 0; layer--)
		r = backward_layer(network, backend, layer - 1);
	if (r < 0)
		return r;
	return push_embedding(network, backend, &batch);
}

int network_evaluate(struct network *network, struct backend *backend, const uint8_t *bytes, double *ret_loss)
{
	struct batch batch = full_batch(network, bytes);
	int r = forward_to_logits(network, backend, &batch);

	if (r < 0)
		return r;
	*ret_loss = head_loss(&network->context, &batch, 1.0f, network->logits, network->losses);
	return 0;
}

int network_predict(struct network *network, struct backend *backend, const uint8_t *bytes, size_t length,
		    float ret_logits[MODEL_VOCABULARY])
{
	struct batch batch = { .bytes = bytes, .length = length };
	int r;

	if (length == 0 || length > network->model->shape.context)
		return -EINVAL;
	set_shape(network, 1, length);
	r = forward_to_logits(network, backend, &batch);
	if (r < 0)
		return r;
	memcpy(ret_logits, network->logits + (length - 1) * MODEL_VOCABULARY,
	       MODEL_VOCABULARY * sizeof(float));
	return 0;
}
