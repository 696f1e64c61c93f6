/* Lease: a gathered unit; View: one of its tensors, by the buffer protocol and by DLPack; on a GPU also by
 * what Numba calls its array interface. */
#include <errno.h>
#include <string.h>

#include "core/gather_on.h"
#include "core/hold.h"

struct view {
	PyObject object;
	struct hold *hold;
	PyObject *job; /* on a GPU; else NULL */
	uint32_t tensor;
	Py_ssize_t sizes[TIERD_MAX_DIMENSIONS], strides[TIERD_MAX_DIMENSIONS];
};

struct lease {
	PyObject object;
	struct hold *hold; /* NULL: released */
	PyObject *job;	   /* on a GPU; else NULL */
	uint64_t version;
};

static void object_free(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	PyObject_Free(self);
	Py_DECREF(type);
}

/* ---- View ---- */

static PyObject *view_object(struct core_state *state, struct hold *hold, uint32_t tensor, PyObject *job)
{
	const struct tensor_shape *shape = &hold_shape(hold)->tensors[tensor];
	struct view *view = PyObject_New(struct view, state->view);
	Py_ssize_t stride = shape->type.bits / 8;

	if (!view)
		return NULL;
	view->hold = hold_share(hold);
	view->job = Py_XNewRef(job);
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
	Py_XDECREF(((struct view *)self)->job);
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

	if (view->job) {
		PyErr_SetString(PyExc_BufferError, "it is in the memory of a GPU, and no buffer");
		return -1;
	}
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

/* ---- DLPack, by the array API's rules ---- */

/* What the consumer's stream is given from now on sees the values, and they stay until it has done what it
 * was given when the last tensor went. */
static int let_use(const struct view *view, PyObject *stream)
{
	void *number = NULL;

	if (!view->job)
		return 0;
	if (stream != Py_None && PyLong_Check(stream)) {
		long named = PyLong_AsLong(stream);

		if (named == -1 && !PyErr_Occurred())
			return 0;
		PyErr_Clear();
		if (named == 0) {
			PyErr_SetString(
				PyExc_ValueError,
				"stream is 0, which is no stream's number there: 1 is the default stream");
			return -1;
		}
	}
	if (stream != Py_None && stream_take(stream, &number) < 0)
		return -1;
	return hold_use_on(view->hold, view->job, number);
}

/* Another device, or a copy. */
static int refuse_others(const struct view *view, PyObject *device, PyObject *copy)
{
	DLDevice own = hold_device(view->hold);
	int type = own.device_type, number = own.device_id;

	if (device != Py_None && !PyArg_ParseTuple(device, "ii", &type, &number))
		return -1;
	if (type == (int)own.device_type && number == own.device_id && copy != Py_True)
		return 0;
	PyErr_SetString(PyExc_BufferError, "a tensor of a job is shown where it is, and not copied");
	return -1;
}

static PyObject *view_dlpack(PyObject *self, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = { "stream", "max_version", "dl_device", "copy", NULL };
	PyObject *stream = Py_None, *version = Py_None, *device = Py_None, *copy = Py_None;
	const struct view *view = (struct view *)self;
	int major = 0, minor;

	if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|$OOOO", names, &stream, &version, &device,
					 &copy) ||
	    (version != Py_None && !PyArg_ParseTuple(version, "ii", &major, &minor)) ||
	    refuse_others(view, device, copy) < 0 || let_use(view, stream) < 0)
		return NULL;
	return major > 0 ? hold_capsule_versioned(view->hold, view->tensor)
			 : hold_capsule(view->hold, view->tensor);
}

static PyObject *view_dlpack_device(PyObject *self, PyObject *unused)
{
	DLDevice device = hold_device(((struct view *)self)->hold);

	return Py_BuildValue("(ii)", (int)device.device_type, (int)device.device_id);
}

/* ---- The array interface of CUDA ---- */

static const char *type_of(DLDataType type)
{
	const char *letter = letter_of(type);

	return *letter == 'H' ? "<u2" : *letter == 'B' ? "|u1" : *letter == 'f' ? "<f4" : "<f2";
}

/* Whoever uses it on another stream than the lease's waits for that one, and has it wait in the end. */
static PyObject *view_array_interface(PyObject *self, void *unused)
{
	const struct view *view = (struct view *)self;
	const struct tensor_shape *shape = &hold_shape(view->hold)->tensors[view->tensor];
	unsigned long long stream = view->job ? (uintptr_t)hold_streams(view->hold)[0] : 0;
	PyObject *sizes;

	if (!view->job) {
		PyErr_SetString(PyExc_AttributeError, "it is in host memory");
		return NULL;
	}
	sizes = PyTuple_New(shape->dimensions);
	for (int i = 0; sizes && i < shape->dimensions; i++)
		PyTuple_SetItem(sizes, i, PyLong_FromLongLong(shape->sizes[i]));
	return sizes ? Py_BuildValue("{s:i,s:N,s:s,s:(KO),s:K}", "version", 3, "shape", sizes, "typestr",
				     type_of(shape->type), "data",
				     (unsigned long long)(uintptr_t)hold_data(view->hold, view->tensor),
				     Py_True, "stream", stream ? stream : 1ull)
		     : NULL;
}

static PyMethodDef view_methods[] = {
	{ "__dlpack__", (PyCFunction)(void (*)(void))view_dlpack, METH_VARARGS | METH_KEYWORDS,
	  "A DLPack capsule that shares the lease. On a GPU the stream, None for the default one, sees the "
	  "values, and may use them until the last tensor is gone; -1: nobody waits." },
	{ "__dlpack_device__", view_dlpack_device, METH_NOARGS,
	  "(1, 0): the host's memory; (2, N): that of GPU N." },
	{ 0 },
};

static PyGetSetDef view_attributes[] = {
	{ "__cuda_array_interface__", view_array_interface, NULL,
	  "On a GPU: what Numba takes, for the stream of the lease.", NULL },
	{ 0 },
};

static PyType_Slot view_slots[] = {
	{ Py_tp_doc, "A tensor of a gathered unit: read-only, row-major; bf16 is shown as 16-bit numbers "
		     "('H') by the buffer protocol." },
	{ Py_tp_dealloc, view_dealloc },
	{ Py_tp_methods, view_methods },
	{ Py_tp_getset, view_attributes },
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

PyObject *lease_object(struct core_state *state, struct hold *hold, uint64_t version, PyObject *job)
{
	struct lease *lease = PyObject_New(struct lease, state->lease);

	if (!lease)
		return NULL;
	lease->hold = hold;
	lease->job = Py_XNewRef(job);
	lease->version = version;
	return (PyObject *)lease;
}

static void lease_dealloc(PyObject *self)
{
	hold_drop(((struct lease *)self)->hold);
	Py_XDECREF(((struct lease *)self)->job);
	object_free(self);
}

static PyObject *lease_release(PyObject *self, PyObject *unused)
{
	struct hold *hold = ((struct lease *)self)->hold;

	/* Other threads may run meanwhile. */
	((struct lease *)self)->hold = NULL;
	hold_drop(hold);
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

/* NULL with an exception set. */
static struct hold *hold_of(PyObject *self)
{
	struct hold *hold = ((struct lease *)self)->hold;

	if (!hold)
		PyErr_SetString(PyExc_ValueError, "the lease is released");
	return hold;
}

static Py_ssize_t lease_length(PyObject *self)
{
	const struct hold *hold = ((struct lease *)self)->hold;

	return hold ? hold_count(hold) : 0;
}

static PyObject *lease_item(PyObject *self, Py_ssize_t index)
{
	struct hold *hold = hold_of(self);

	if (!hold)
		return NULL;
	if (index < 0 || index >= hold_count(hold)) {
		PyErr_Format(PyExc_IndexError, "the unit has %u tensors", hold_count(hold));
		return NULL;
	}
	return view_object(core_state_of(self), hold, index, ((struct lease *)self)->job);
}

static PyObject *lease_capsules(PyObject *self, PyObject *unused)
{
	struct hold *hold = hold_of(self);

	return hold ? hold_capsules(hold) : NULL;
}

static PyObject *lease_use_on(PyObject *self, PyObject *argument)
{
	PyObject *job = ((struct lease *)self)->job;
	struct hold *hold;
	void *stream;
	int r;

	if (stream_take(argument, &stream) < 0)
		return NULL;
	hold = hold_of(self);
	if (!hold)
		return NULL;
	if (!job)
		return PyErr_Format(PyExc_ValueError, "the lease is one in host memory");
	/* Another thread may release the lease meanwhile. */
	hold_share(hold);
	r = hold_use_on(hold, job, stream);
	hold_drop(hold);
	return r < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *lease_version(PyObject *self, void *unused)
{
	return PyLong_FromUnsignedLongLong(((struct lease *)self)->version);
}

static PyMethodDef lease_methods[] = {
	{ "release", lease_release, METH_NOARGS,
	  "Gives the lease's own share back; views of it keep theirs." },
	{ "capsules", lease_capsules, METH_NOARGS,
	  "A DLPack capsule for each tensor, which share the lease." },
	{ "use_on", lease_use_on, METH_O,
	  "use_on(stream): another stream sees the values, too. The GPU's memory is used again when all "
	  "streams "
	  "of the lease have done what they were given before it was released." },
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
