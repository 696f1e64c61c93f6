/* Lease: a gathered unit; View: one of its tensors, by the buffer protocol and by DLPack. */
#include <string.h>

#include "core/hold.h"

struct view {
	PyObject object;
	struct hold *hold;
	uint32_t tensor;
	Py_ssize_t sizes[TIERD_MAX_DIMENSIONS], strides[TIERD_MAX_DIMENSIONS];
};

struct lease {
	PyObject object;
	struct hold *hold; /* NULL: released */
	uint64_t version;
};

static void object_free(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	PyObject_Free(self);
	Py_DECREF(type);
}

/* ---- View ---- */

static PyObject *view_object(struct core_state *state, struct hold *hold, uint32_t tensor)
{
	const struct tensor_shape *shape = &hold_shape(hold)->tensors[tensor];
	struct view *view = PyObject_New(struct view, state->view);
	Py_ssize_t stride = shape->type.bits / 8;

	if (!view)
		return NULL;
	view->hold = hold_share(hold);
	view->tensor = tensor;
	for (int i = shape->dimensions - 1; i >= 0; i--) {
		view->sizes[i] = shape->sizes[i];
		view->strides[i] = stride;
		stride *= shape->sizes[i];
	}
	return (PyObject *)view;
}

static void view_dealloc(PyObject *self)
{
	hold_drop(((struct view *)self)->hold);
	object_free(self);
}

/* bf16 has no letter there: its elements are shown as unsigned 16-bit numbers. */
static const char *letter_of(DLDataType type)
{
	if (type.code == kDLBfloat)
		return "H";
	if (type.code == kDLUInt)
		return "B";
	return type.bits == 32 ? "f" : "e";
}

static int view_buffer(PyObject *self, Py_buffer *buffer, int flags)
{
	struct view *view = (struct view *)self;
	const struct tensor_shape *shape = &hold_shape(view->hold)->tensors[view->tensor];

	/* Gathered memory is mapped read-only. */
	if (PyBuffer_FillInfo(buffer, self, hold_data(view->hold, view->tensor), shape->bytes, 1, flags) < 0)
		return -1;
	buffer->itemsize = shape->type.bits / 8;
	if (flags & PyBUF_FORMAT)
		buffer->format = (char *)letter_of(shape->type);
	if (flags & PyBUF_ND) {
		buffer->ndim = shape->dimensions;
		buffer->shape = view->sizes;
	}
	if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES)
		buffer->strides = view->strides;
	return 0;
}

static PyObject *view_dlpack(PyObject *self, PyObject *arguments, PyObject *keywords)
{
	/* stream, max_version, dl_device and copy: none has a meaning for memory of the host that is read
	 * alone. */
	return hold_capsule(((struct view *)self)->hold, ((struct view *)self)->tensor);
}

static PyObject *view_dlpack_device(PyObject *self, PyObject *unused)
{
	return Py_BuildValue("(ii)", (int)kDLCPU, 0);
}

static PyMethodDef view_methods[] = {
	{ "__dlpack__", (PyCFunction)(void (*)(void))view_dlpack, METH_VARARGS | METH_KEYWORDS,
	  "A DLPack capsule that shares the lease." },
	{ "__dlpack_device__", view_dlpack_device, METH_NOARGS, "(1, 0): the host's memory." },
	{ 0 },
};

static PyType_Slot view_slots[] = {
	{ Py_tp_doc, "A tensor of a gathered unit: read-only, row-major; bf16 is shown as 16-bit numbers "
		     "('H') by the buffer protocol." },
	{ Py_tp_dealloc, view_dealloc },
	{ Py_tp_methods, view_methods },
	{ Py_bf_getbuffer, view_buffer },
	{ 0, NULL },
};

PyType_Spec view_spec = {
	.name = "tierd._core.View",
	.basicsize = sizeof(struct view),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = view_slots,
};

/* ---- Lease ---- */

PyObject *lease_object(struct core_state *state, struct hold *hold, uint64_t version)
{
	struct lease *lease = PyObject_New(struct lease, state->lease);

	if (!lease)
		return NULL;
	lease->hold = hold;
	lease->version = version;
	return (PyObject *)lease;
}

static void lease_dealloc(PyObject *self)
{
	hold_drop(((struct lease *)self)->hold);
	object_free(self);
}

static PyObject *lease_release(PyObject *self, PyObject *unused)
{
	((struct lease *)self)->hold = hold_drop(((struct lease *)self)->hold);
	Py_RETURN_NONE;
}

static PyObject *lease_enter(PyObject *self, PyObject *unused)
{
	return Py_NewRef(self);
}

static PyObject *lease_exit(PyObject *self, PyObject *arguments)
{
	return lease_release(self, NULL);
}

static Py_ssize_t lease_length(PyObject *self)
{
	const struct hold *hold = ((struct lease *)self)->hold;

	return hold ? hold_count(hold) : 0;
}

static PyObject *lease_item(PyObject *self, Py_ssize_t index)
{
	struct hold *hold = ((struct lease *)self)->hold;

	if (!hold) {
		PyErr_SetString(PyExc_ValueError, "the lease is released");
		return NULL;
	}
	if (index < 0 || index >= hold_count(hold)) {
		PyErr_Format(PyExc_IndexError, "the unit has %u tensors", hold_count(hold));
		return NULL;
	}
	return view_object(core_state_of(self), hold, index);
}

static PyObject *lease_version(PyObject *self, void *unused)
{
	return PyLong_FromUnsignedLongLong(((struct lease *)self)->version);
}

static PyMethodDef lease_methods[] = {
	{ "release", lease_release, METH_NOARGS,
	  "Gives the lease's own share back; views of it keep theirs." },
	{ "__enter__", lease_enter, METH_NOARGS, NULL },
	{ "__exit__", lease_exit, METH_VARARGS, NULL },
	{ 0 },
};

static PyGetSetDef lease_attributes[] = {
	{ "version", lease_version, NULL, "The step that the values contain.", NULL },
	{ 0 },
};

static PyType_Slot lease_slots[] = {
	{ Py_tp_doc, "A gathered unit, a sequence of Views. The unit is released when the lease and all its "
		     "views are gone." },
	{ Py_tp_dealloc, lease_dealloc },
	{ Py_tp_methods, lease_methods },
	{ Py_tp_getset, lease_attributes },
	{ Py_sq_length, lease_length },
	{ Py_sq_item, lease_item },
	{ 0, NULL },
};

PyType_Spec lease_spec = {
	.name = "tierd._core.Lease",
	.basicsize = sizeof(struct lease),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = lease_slots,
};
