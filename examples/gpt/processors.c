#include "compute.h"

#include <errno.h>

static int prepare(struct compute *compute, const struct model *model, const struct layer_context *largest)
{
	return 0;
}

static int allocate(struct compute *compute, size_t bytes, void **ret_memory)
{
	void *memory = aligned_alloc(64, bytes);

	if (!memory)
		return -ENOMEM;
	*ret_memory = memory;
	return 0;
}

static void free_memory(struct compute *compute, void *memory)
{
	free(memory);
}

static int copy(struct compute *compute, void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
	return 0;
}

static void clear(struct compute *compute, void *memory, size_t bytes)
{
	memset(memory, 0, bytes);
}

static int gather(struct compute *compute, struct backend *backend, unsigned unit,
		  struct unit_view *ret_parameters)
{
	return backend_gather(backend, unit, ret_parameters);
}

static int release(struct compute *compute, struct backend *backend, unsigned unit)
{
	return backend_release(backend, unit);
}

static int gradients(struct compute *compute, struct backend *backend, unsigned unit,
		     struct unit_view *ret_gradients)
{
	return backend_gradients(backend, unit, ret_gradients);
}

static int push(struct compute *compute, struct backend *backend, unsigned unit)
{
	return backend_push(backend, unit);
}

/* The backend knows what this rank holds. */
static void abandon(struct compute *compute, struct backend *backend)
{
}

static const struct compute_ops processors_ops = {
	.prepare = prepare,
	.allocate = allocate,
	.free = free_memory,
	.upload = copy,
	.download = copy,
	.clear = clear,
	.gather = gather,
	.release = release,
	.gradients = gradients,
	.push = push,
	.abandon = abandon,
	.embedding_forward = embedding_forward,
	.embedding_backward = embedding_backward,
	.norm = layer_norm,
	.norm_backward = layer_norm_backward,
	.head_forward = head_forward,
	.head_loss = head_loss,
	.head_backward = head_backward,
	.layer_forward = layer_forward,
	.layer_backward = layer_backward,
};

struct compute processors(struct team *team)
{
	return (struct compute){ .ops = &processors_ops, .team = team, .hidden_slices = 1 };
}
