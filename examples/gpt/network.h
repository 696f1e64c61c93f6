/* The whole model's forward and backward pass: units are gathered just before they are needed and released
 * just after, gradients are pushed as soon as a unit's are complete. */
#ifndef GPT_NETWORK_H
#define GPT_NETWORK_H

#include "backend.h"
#include "compute.h"

struct network;

/* Scratch that each thread of the network's team needs. */
size_t network_scratch_bytes(const struct model_shape *shape);

/* For batches of up to `batch` sequences. keeps_activations: of every layer, instead of computing them again
 * in the backward pass from the layer's input. The compute is the caller's. */
int network_new(const struct model *model, size_t batch, bool keeps_activations, struct compute *compute,
		struct network **ret_network);
struct network *network_free(struct network *network);
DEFINE_FREEP(struct network *, network_free)

/* Bytes of its activations and work space. */
uint64_t network_bytes(const struct network *network);

/* One micro-batch of full-length sequences: tells the loss, and pushes the gradients of every unit; those of
 * the embedding are the head's and the input's together. */
int network_train(struct network *network, struct backend *backend, const uint8_t *bytes, double *ret_loss);

/* The loss alone. */
int network_evaluate(struct network *network, struct backend *backend, const uint8_t *bytes,
		     double *ret_loss);

/* Before the backend's own abandon, and after any error. */
void network_abandon(struct network *network, struct backend *backend);

/* The logits of the byte that follows `length` bytes, at most as many as the model's context. */
int network_predict(struct network *network, struct backend *backend, const uint8_t *bytes, size_t length,
		    float ret_logits[MODEL_VOCABULARY]);

#endif
