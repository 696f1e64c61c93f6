#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "core/lent.h"

struct lent {
	atomic_uint shares;
	char *address;
	size_t size;
};

struct memory_object {
	PyObject object;
	struct lent *lent;
};

/* A tensor in it. */
struct part {
	DLManagedTensor managed; /* whose manager_ctx is the part */
	int64_t size;
	struct lent *lent;
};

static void drop(struct lent *lent)
{
	if (atomic_fetch_sub(&lent->shares, 1) > 1)
		return;
	munmap(lent->address, lent->size);
	free(lent);
}

PyObject *lent_object(struct core_state *state, void *address, size_t size)
{
	struct memory_object *object = PyObject_New(struct memory_object, state->memory);
	struct lent *lent = object ? malloc(sizeof(*lent)) : NULL;

	if (!lent) {
		munmap(address, size);
		if (object)
			PyErr_NoMemory();
	} else {
		atomic_init(&lent->shares, 1);
		lent->address = address;
		lent->size = size;
	}
	if (object)
		object->lent = lent;
	if (object && !lent)
		Py_CLEAR(object);
	return (PyObject *)object;
}

void *lent_address(PyObject *object, struct core_state *state, size_t *ret_size)
{
	const struct lent *lent;

	if (Py_TYPE(object) != state->memory) {
		PyErr_SetString(PyExc_TypeError, "memory of a reader is wanted");
		return NULL;
	}
	lent = ((struct memory_object *)object)->lent;
	*ret_size = lent->size;
	return lent->address;
}

static void memory_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);
	struct lent *lent = ((struct memory_object *)self)->lent;

	if (lent)
		drop(lent);
	PyObject_Free(self);
	Py_DECREF(type);
}

/* ---- Tensors in it ---- */

static void part_delete(DLManagedTensor *managed)
{
	struct part *part = managed->manager_ctx;

	drop(part->lent);
	free(part);
}

/* Who takes what is in a capsule renames it; else it goes with the capsule. */
static void capsule_end(PyObject *capsule)
{
	if (PyCapsule_IsValid(capsule, "dltensor"))
		part_delete(PyCapsule_GetPointer(capsule, "dltensor"));
}

static PyObject *capsule_of(struct lent *lent, size_t offset, size_t size)
{
	struct part *part = malloc(sizeof(*part));
	PyObject *capsule = NULL;

	if (!part)
		return PyErr_NoMemory();
	part->size = (int64_t)size;
	part->lent = lent;
	part->managed = (DLManagedTensor){
		.dl_tensor = { .data = lent->address + offset,
			       .device = { kDLCPU, 0 },
			       .ndim = 1,
			       .dtype = { kDLUInt, 8, 1 },
			       .shape = &part->size },
		.manager_ctx = part,
		.deleter = part_delete,
	};
	capsule = PyCapsule_New(&part->managed, "dltensor", capsule_end);
	if (capsule)
		atomic_fetch_add(&lent->shares, 1);
	else
		free(part);
	return capsule;
}

static PyObject *memory_capsule(PyObject *self, PyObject *arguments)
{
	struct lent *lent = ((struct memory_object *)self)->lent;
	Py_ssize_t offset, size;

	if (!PyArg_ParseTuple(arguments, "nn", &offset, &size))
		return NULL;
	if (offset >= 0 && size >= 0 && (size_t)offset <= lent->size && (size_t)size <= lent->size - offset)
		return capsule_of(lent, offset, size);
	return PyErr_Format(PyExc_ValueError, "the memory has %zu bytes", lent->size);
}

static PyMethodDef memory_methods[] = {
	{ "capsule", memory_capsule, METH_VARARGS,
	  "capsule(offset, size): bytes of it by DLPack; they keep all of it." },
	{ 0 },
};

static PyType_Slot memory_slots[] = {
	{ Py_tp_doc, "Memory that tierd writes to, as tierd_reader_memory(3) gives it." },
	{ Py_tp_dealloc, memory_dealloc },
	{ Py_tp_methods, memory_methods },
	{ 0, NULL },
};

PyType_Spec memory_spec = {
	.name = "tierd._core.Memory",
	.basicsize = sizeof(struct memory_object),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = memory_slots,
};
