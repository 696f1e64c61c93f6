#include <stdatomic.h>
#include <stdlib.h>

#include "core/hold.h"

struct hold {
	atomic_uint shares;
	struct tierd_job *job; /* NULL: nothing is to be released */
	uint32_t unit;
	struct shape *shape;
	void (*end)(void *argument); /* or NULL */
	void *end_argument;
	DLManagedTensor tensors[]; /* whose manager_ctx is the hold */
};

static void managed_delete(DLManagedTensor *dlpack)
{
	hold_drop(dlpack->manager_ctx);
}

/* job: NULL of gradients. */
static struct hold *hold_new(struct tierd_job *job, uint32_t unit, struct shape *shape,
			     const struct tierd_view *view)
{
	struct hold *hold = malloc(sizeof(*hold) + shape->count * sizeof(hold->tensors[0]));

	if (!hold) {
		PyErr_NoMemory();
		return NULL;
	}
	atomic_init(&hold->shares, 1);
	hold->job = job;
	hold->unit = unit;
	hold->shape = shape_share(shape);
	hold->end = NULL;
	for (uint32_t i = 0; i < shape->count; i++)
		hold->tensors[i] = (DLManagedTensor){
			.dl_tensor = {
				.data = view->offsets[i] == TIERD_NO_OFFSET ? NULL : tierd_at(view, i),
				.device = { kDLCPU, 0 },
				.ndim = shape->tensors[i].dimensions,
				.dtype = job ? shape->tensors[i].type : shape->tensors[i].gradient_type,
				.shape = shape->tensors[i].sizes,
			},
			.manager_ctx = hold,
			.deleter = managed_delete,
		};
	return hold;
}

struct hold *hold_new_lease(struct tierd_job *job, uint32_t unit, struct shape *shape,
			    const struct tierd_view *view)
{
	return hold_new(job, unit, shape, view);
}

struct hold *hold_new_gradients(struct shape *shape, const struct tierd_view *view)
{
	return hold_new(NULL, 0, shape, view);
}

struct hold *hold_share(struct hold *hold)
{
	atomic_fetch_add(&hold->shares, 1);
	return hold;
}

struct hold *hold_drop(struct hold *hold)
{
	if (!hold || atomic_fetch_sub(&hold->shares, 1) > 1)
		return NULL;
	/* It fails in a forked child alone, which has no lease. */
	if (hold->job)
		(void)tierd_release(hold->job, hold->unit);
	if (hold->end)
		hold->end(hold->end_argument);
	shape_drop(hold->shape);
	free(hold);
	return NULL;
}

bool hold_is_shared(const struct hold *hold)
{
	return atomic_load(&hold->shares) > 1;
}

void hold_set_end(struct hold *hold, void (*end)(void *argument), void *argument)
{
	hold->end = end;
	hold->end_argument = argument;
}

uint32_t hold_count(const struct hold *hold)
{
	return hold->shape->count;
}

const struct shape *hold_shape(const struct hold *hold)
{
	return hold->shape;
}

void *hold_data(const struct hold *hold, uint32_t tensor)
{
	return hold->tensors[tensor].dl_tensor.data;
}

/* ---- DLPack ---- */

/* Who takes what is in a capsule renames it; else it goes with the capsule. */
static void capsule_end(PyObject *capsule)
{
	DLManagedTensor *dlpack;

	if (!PyCapsule_IsValid(capsule, "dltensor"))
		return;
	dlpack = PyCapsule_GetPointer(capsule, "dltensor");
	dlpack->deleter(dlpack);
}

PyObject *hold_capsule(struct hold *hold, uint32_t tensor)
{
	PyObject *capsule;

	if (!hold_data(hold, tensor))
		Py_RETURN_NONE;
	capsule = PyCapsule_New(&hold->tensors[tensor], "dltensor", capsule_end);
	if (capsule)
		hold_share(hold);
	return capsule;
}

PyObject *hold_capsules(struct hold *hold)
{
	PyObject *tuple = PyTuple_New(hold->shape->count);

	for (uint32_t i = 0; tuple && i < hold->shape->count; i++) {
		PyObject *capsule = hold_capsule(hold, i);

		if (!capsule)
			Py_CLEAR(tuple);
		else
			PyTuple_SetItem(tuple, i, capsule);
	}
	return tuple;
}
