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
	uint8_t *text; /* the bytes of a batch */
	float *memory; /* all of the above and the context's work space */
	uint64_t bytes;
	float *host_losses; /* [rows] */
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
		.hidden =
			take(places, (network->keeps_activations ? LAYER_SLICES
								 : network->context.compute->hidden_slices) *
					     elements),
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
	network->text = (uint8_t *)take(&places, (rows + network->batch + 3) / sizeof(float));
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

int network_new(const struct model *model, size_t batch, bool keeps_activations, struct compute *compute,
		struct network **ret_network)
{
	_cleanup_(network_freep) struct network *network = calloc(1, sizeof(*network));
	void *memory;
	int r;

	if (!network)
		return -ENOMEM;
	network->model = model;
	network->batch = batch;
	network->keeps_activations = keeps_activations;
	network->context.compute = compute;
	network->context.team = compute->team;
	network->context.format = model->shape.format;
	network->context.shape.width = model->shape.width;
	network->context.shape.heads = model->shape.heads;
	set_shape(network, batch, model->shape.context);
	network->activations = calloc(model->shape.layers, sizeof(network->activations[0]));
	network->host_losses = calloc(network->context.rows, sizeof(network->host_losses[0]));
	if (!network->activations || !network->host_losses)
		return -ENOMEM;
	network->bytes = place_arrays(network) * sizeof(float);
	r = compute->ops->prepare(compute, model, &network->context);
	if (r == 0)
		r = compute->ops->allocate(compute, network->bytes, &memory);
	if (r < 0)
		return r;
	network->memory = memory;
	place_arrays(network);
	*ret_network = TAKE_PTR(network);
	return 0;
}

struct network *network_free(struct network *network)
{
	if (network) {
		if (network->memory)
			network->context.compute->ops->free(network->context.compute, network->memory);
		free(network->host_losses);
		free(network->activations);
	}
	free(network);
	return NULL;
}

uint64_t network_bytes(const struct network *network)
{
	return network->bytes;
}

static const struct compute_ops *ops_of(const struct network *network)
{
	return network->context.compute->ops;
}

static float *input_of(const struct network *network, uint64_t layer)
{
	return network->inputs + layer * network->context.rows * network->context.shape.width;
}

/* ---- Units ---- */

static int gather(struct network *network, struct backend *backend, unsigned unit,
		  struct unit_view *ret_parameters)
{
	return ops_of(network)->gather(network->context.compute, backend, unit, ret_parameters);
}

static int release(struct network *network, struct backend *backend, unsigned unit)
{
	return ops_of(network)->release(network->context.compute, backend, unit);
}

static int gradients(struct network *network, struct backend *backend, unsigned unit,
		     struct unit_view *ret_gradients)
{
	return ops_of(network)->gradients(network->context.compute, backend, unit, ret_gradients);
}

static int push(struct network *network, struct backend *backend, unsigned unit)
{
	return ops_of(network)->push(network->context.compute, backend, unit);
}

void network_abandon(struct network *network, struct backend *backend)
{
	ops_of(network)->abandon(network->context.compute, backend);
}

/* ---- Forward ---- */

static int embed(struct network *network, struct backend *backend, const struct batch *batch)
{
	unsigned unit = model_embedding(network->model);
	struct unit_view parameters;
	int r = gather(network, backend, unit, &parameters);

	if (r < 0)
		return r;
	ops_of(network)->embedding_forward(&network->context, &parameters, batch, input_of(network, 0));
	return release(network, backend, unit);
}

static int forward_layer(struct network *network, struct backend *backend, unsigned layer)
{
	unsigned unit = model_layer(network->model, layer);
	struct unit_view parameters;
	int r = gather(network, backend, unit, &parameters);

	if (r < 0)
		return r;
	ops_of(network)->layer_forward(&network->context, &parameters, &network->activations[layer],
				       input_of(network, layer), input_of(network, layer + 1));
	return release(network, backend, unit);
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
	int r = gather(network, backend, model_final(network->model), &ret_views->final);

	if (r < 0)
		return r;
	return gather(network, backend, model_embedding(network->model), &ret_views->embedding);
}

static int release_head(struct network *network, struct backend *backend)
{
	int r = release(network, backend, model_embedding(network->model));

	if (r < 0)
		return r;
	return release(network, backend, model_final(network->model));
}

static void compute_logits(struct network *network, const struct head_views *views)
{
	struct layer_context *context = &network->context;

	ops_of(network)->norm(context, input_of(network, network->model->shape.layers),
			      views->final.tensor[FINAL_NORM_WEIGHT], views->final.tensor[FINAL_NORM_BIAS],
			      context->normal);
	ops_of(network)->head_forward(context, &views->embedding, context->normal, network->logits);
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
	struct unit_view written;
	int r = gradients(network, backend, unit, &written);

	if (r < 0)
		return r;
	ops_of(network)->clear(context->compute, network->gradient,
			       context->rows * context->shape.width * sizeof(float));
	ops_of(network)->norm_backward(context, input_of(network, network->model->shape.layers),
				       views->final.tensor[FINAL_NORM_WEIGHT], context->normal_gradient,
				       network->gradient, written.tensor[FINAL_NORM_WEIGHT],
				       written.tensor[FINAL_NORM_BIAS]);
	return push(network, backend, unit);
}

/* The mean over the rows, once that is known. */
static int read_loss(struct network *network, double *ret_loss)
{
	struct layer_context *context = &network->context;
	double sum = 0.0;
	int r = ops_of(network)->download(context->compute, network->host_losses, network->losses,
					  context->rows * sizeof(float));

	for (size_t row = 0; row < context->rows; row++)
		sum += network->host_losses[row];
	*ret_loss = sum / (double)context->rows;
	return r;
}

static int train_head(struct network *network, struct backend *backend, const struct batch *batch)
{
	struct layer_context *context = &network->context;
	struct head_views views;
	int r = gather_head(network, backend, &views);

	if (r < 0)
		return r;
	compute_logits(network, &views);
	ops_of(network)->head_loss(context, batch, backend->loss_scale, network->logits, network->losses);
	ops_of(network)->head_backward(context, &views.embedding, context->normal, network->logits,
				       context->normal_gradient, network->head_gradient);
	r = push_final(network, backend, &views);
	if (r < 0)
		return r;
	return release_head(network, backend);
}

static int backward_layer(struct network *network, struct backend *backend, unsigned layer)
{
	unsigned unit = model_layer(network->model, layer);
	struct unit_view parameters, written;
	int r = gather(network, backend, unit, &parameters);

	if (r < 0)
		return r;
	r = gradients(network, backend, unit, &written);
	if (r < 0)
		return r;
	ops_of(network)->layer_backward(&network->context, &parameters, &network->activations[layer],
					input_of(network, layer), network->gradient, &written);
	r = push(network, backend, unit);
	if (r < 0)
		return r;
	return release(network, backend, unit);
}

static int push_embedding(struct network *network, struct backend *backend, const struct batch *batch)
{
	unsigned unit = model_embedding(network->model);
	struct unit_view written;
	int r = gradients(network, backend, unit, &written);

	if (r < 0)
		return r;
	ops_of(network)->embedding_backward(&network->context, batch, network->gradient,
					    network->head_gradient, &written);
	return push(network, backend, unit);
}

/* ---- Uses ---- */

static int put_batch(struct network *network, size_t batch, size_t length, const uint8_t *bytes, size_t count,
		     struct batch *ret_batch)
{
	set_shape(network, batch, length);
	*ret_batch = (struct batch){ .bytes = network->text, .length = length };
	return ops_of(network)->upload(network->context.compute, network->text, bytes, count);
}

static int put_full_batch(struct network *network, const uint8_t *bytes, struct batch *ret_batch)
{
	size_t context = network->model->shape.context;

	return put_batch(network, network->batch, context, bytes, network->batch * (context + 1), ret_batch);
}

int network_train(struct network *network, struct backend *backend, const uint8_t *bytes, double *ret_loss)
{
	struct batch batch;
	int r = put_full_batch(network, bytes, &batch);

	if (r == 0)
		r = forward(network, backend, &batch);
	if (r < 0)
		return r;
	r = train_head(network, backend, &batch);
	for (unsigned layer = (unsigned)network->model->shape.layers; r == 0 && layer > 0; layer--)
		r = backward_layer(network, backend, layer - 1);
	if (r < 0)
		return r;
	r = push_embedding(network, backend, &batch);
	return r < 0 ? r : read_loss(network, ret_loss);
}

int network_evaluate(struct network *network, struct backend *backend, const uint8_t *bytes, double *ret_loss)
{
	struct batch batch;
	int r = put_full_batch(network, bytes, &batch);

	if (r == 0)
		r = forward_to_logits(network, backend, &batch);
	if (r < 0)
		return r;
	ops_of(network)->head_loss(&network->context, &batch, 1.0f, network->logits, network->losses);
	return read_loss(network, ret_loss);
}

int network_predict(struct network *network, struct backend *backend, const uint8_t *bytes, size_t length,
		    float ret_logits[MODEL_VOCABULARY])
{
	struct batch batch;
	int r;

	if (length == 0 || length > network->model->shape.context)
		return -EINVAL;
	r = put_batch(network, 1, length, bytes, length, &batch);
	if (r == 0)
		r = forward_to_logits(network, backend, &batch);
	if (r < 0)
		return r;
	return ops_of(network)->download(network->context.compute, ret_logits,
					 network->logits + (length - 1) * MODEL_VOCABULARY,
					 MODEL_VOCABULARY * sizeof(float));
}
