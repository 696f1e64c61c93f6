#include <stdatomic.h>
#include <stdlib.h>

#include "core/hold.h"

struct hold {
	atomic_uint shares;
	struct tierd_job *job; /* NULL: nothing is to be released */
	uint32_t unit;
	struct shape *shape;
	const void *base;
	DLDevice device;
	void **streams; /* that use it, each with a lease; NULL: it is in host memory */
	unsigned stream_count;
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
			     const struct tierd_view *view, DLDevice device)
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
	hold->base = view->base;
	hold->device = device;
	hold->streams = NULL;
	hold->stream_count = 0;
	hold->end = NULL;
	for (uint32_t i = 0; i < shape->count; i++)
		hold->tensors[i] = (DLManagedTensor){
			.dl_tensor = {
				.data = view->offsets[i] == TIERD_NO_OFFSET ? NULL : tierd_at(view, i),
				.device = device,
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
	return hold_new(job, unit, shape, view, (DLDevice){ kDLCPU, 0 });
}

struct hold *hold_new_lease_on(struct tierd_job *job, uint32_t unit, struct shape *shape,
			       const struct tierd_view *view, int gpu, void *stream)
{
	struct hold *hold = hold_new(job, unit, shape, view, (DLDevice){ kDLCUDA, gpu });

	if (!hold || hold_add_stream(hold, stream))
		return hold;
	hold->job = NULL;
	return hold_drop(hold);
}

struct hold *hold_new_gradients(struct shape *shape, const struct tierd_view *view, int gpu)
{
	return hold_new(NULL, 0, shape, view, gpu < 0 ? (DLDevice){ kDLCPU, 0 } : (DLDevice){ kDLCUDA, gpu });
}

struct hold *hold_share(struct hold *hold)
{
	atomic_fetch_add(&hold->shares, 1);
	return hold;
}

/* Those fail in a forked child, which has no lease, and where a GPU has failed. */
static void release_on_all(const struct hold *hold)
{
	for (unsigned i = 0; i < hold->stream_count; i++)
		(void)tierd_release_on(hold->job, hold->unit, hold->streams[i]);
}

/* A stream that has gone is waited for, and what the GPU does until then may want the interpreter. */
static void release(const struct hold *hold)
{
	PyThreadState *state;

	if (!hold->streams) {
		(void)tierd_release(hold->job, hold->unit);
		return;
	}
	state = core_give_up();
	release_on_all(hold);
	core_take_back(state);
}

struct hold *hold_drop(struct hold *hold)
{
	if (!hold || atomic_fetch_sub(&hold->shares, 1) > 1)
		return NULL;
	if (hold->job)
		release(hold);
	if (hold->end)
		hold->end(hold->end_argument);
	shape_drop(hold->shape);
	free(hold->streams);
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

/* ---- On a GPU ---- */

bool hold_is_used_on(const struct hold *hold, const void *stream)
{
	for (unsigned i = 0; i < hold->stream_count; i++)
		if (hold->streams[i] == stream)
			return true;
	return false;
}

bool hold_add_stream(struct hold *hold, void *stream)
{
	void **streams = realloc(hold->streams, (hold->stream_count + 1) * sizeof(*streams));

	if (!streams) {
		PyErr_NoMemory();
		return false;
	}
	streams[hold->stream_count++] = stream;
	hold->streams = streams;
	return true;
}

void *const *hold_streams(const struct hold *hold)
{
	return hold->streams;
}

uint32_t hold_unit(const struct hold *hold)
{
	return hold->unit;
}

const void *hold_base(const struct hold *hold)
{
	return hold->base;
}

DLDevice hold_device(const struct hold *hold)
{
	return hold->device;
}

/* ---- What is there ---- */

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

/* ---- DLPack 1, which the header does not have everywhere ---- */

struct versioned {
	struct {
		uint32_t major, minor;
	} version;
	void *hold;
	void (*deleter)(struct versioned *versioned);
	uint64_t flags;
	DLTensor dl_tensor;
};

enum { VERSIONED_READ_ONLY = 1 };

static void versioned_delete(struct versioned *versioned)
{
	hold_drop(versioned->hold);
	free(versioned);
}

static void versioned_end(PyObject *capsule)
{
	struct versioned *versioned;

	if (!PyCapsule_IsValid(capsule, "dltensor_versioned"))
		return;
	versioned = PyCapsule_GetPointer(capsule, "dltensor_versioned");
	versioned->deleter(versioned);
}

PyObject *hold_capsule_versioned(struct hold *hold, uint32_t tensor)
{
	struct versioned *versioned = malloc(sizeof(*versioned));
	PyObject *capsule;

	if (!versioned)
		return PyErr_NoMemory();
	*versioned = (struct versioned){
		.version = { 1, 0 },
		.hold = hold,
		.deleter = versioned_delete,
		.flags = VERSIONED_READ_ONLY,
		.dl_tensor = hold->tensors[tensor].dl_tensor,
	};
	capsule = PyCapsule_New(versioned, "dltensor_versioned", versioned_end);
	if (capsule)
		hold_share(hold);
	else
		free(versioned);
	return capsule;
}
