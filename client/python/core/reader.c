/* Reader: a look at a job without a rank of it. */
#include <errno.h>
#include <stdlib.h>

#include "core/fields.h"
#include "core/lent.h"
#include "core/reads.h"
#include "core/shape.h"

struct reader {
	PyObject object;
	PyObject *node;		     /* while it is open */
	struct tierd_reader *reader; /* NULL: closed */
	unsigned calls;		     /* that are under way without the interpreter's lock */
};

#define READER_WAITING(self, statement)                                                                      \
	do {                                                                                                 \
		((struct reader *)(self))->calls++;                                                          \
		CORE_WAITING(statement);                                                                     \
		((struct reader *)(self))->calls--;                                                          \
	} while (0)

/* ---- Life ---- */

PyObject *reader_object(struct core_state *state, PyObject *node, struct tierd_reader *reader)
{
	struct reader *object = PyObject_New(struct reader, state->reader);

	if (!object)
		return NULL;
	object->node = Py_NewRef(node);
	object->reader = reader;
	object->calls = 0;
	return (PyObject *)object;
}

/* NULL with an exception set: it is closed. */
static struct tierd_reader *reader_of(PyObject *self)
{
	struct tierd_reader *reader = ((struct reader *)self)->reader;

	if (!reader)
		core_raise_message(core_state_of(self), -EBADF, "the reader is closed");
	return reader;
}

/* The handle is gone whatever the daemon says. */
static void leave(struct reader *object)
{
	struct tierd_reader *reader = object->reader;

	object->reader = NULL;
	if (reader)
		CORE_BLOCKING((void)tierd_reader_close(reader));
	Py_CLEAR(object->node);
}

static PyObject *reader_close(PyObject *self, PyObject *unused)
{
	if (((struct reader *)self)->calls > 0)
		return core_raise_message(core_state_of(self), -EBUSY,
					  "another thread is in a call of this reader");
	leave((struct reader *)self);
	Py_RETURN_NONE;
}

static void reader_dealloc(PyObject *self)
{
	PyTypeObject *type = Py_TYPE(self);

	leave((struct reader *)self);
	PyObject_Free(self);
	Py_DECREF(type);
}

/* ---- What there is ---- */

static PyObject *reader_step(PyObject *self, PyObject *unused)
{
	struct tierd_reader_state state = TIERD_READER_STATE_INIT;
	struct tierd_reader *reader = reader_of(self);
	int r;

	if (!reader)
		return NULL;
	READER_WAITING(self, r = tierd_reader_state(reader, &state));
	return r < 0 ? core_raise(core_state_of(self), r) : PyLong_FromUnsignedLongLong(state.step);
}

static PyObject *tensors_of(PyObject *self, struct tierd_reader *reader, uint32_t unit, uint32_t count)
{
	PyObject *list = PyList_New(count);

	for (uint32_t i = 0; list && i < count; i++) {
		struct tierd_tensor tensor = TIERD_TENSOR_INIT;
		int r = tierd_reader_tensor(reader, unit, i, &tensor);
		PyObject *fields =
			r < 0 ? core_raise(core_state_of(self), r) : fields_give(tensor_fields, &tensor);

		if (!fields || PyList_SetItem(list, i, fields) < 0)
			Py_CLEAR(list);
	}
	return list;
}

/* [(name, [tensor, …]), …] */
static PyObject *reader_units(PyObject *self, PyObject *unused)
{
	struct tierd_reader *reader = reader_of(self);
	PyObject *list = reader ? PyList_New(0) : NULL;
	const char *name;
	uint32_t count;

	/* The only error is that there is no further one. */
	for (uint32_t unit = 0; list && tierd_reader_unit(reader, unit, &name, &count) == 0; unit++) {
		PyObject *tensors = tensors_of(self, reader, unit, count);
		PyObject *pair = tensors ? Py_BuildValue("(sN)", name, tensors) : NULL;

		if (!pair || PyList_Append(list, pair) < 0)
			Py_CLEAR(list);
		Py_XDECREF(pair);
	}
	return list;
}

/* ---- Refresh ---- */

/* All tensors' values of this state are kept; of none where it is "". */
static PyObject *reader_refresh(PyObject *self, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = { "state", NULL };
	struct tierd_reader *reader = reader_of(self);
	struct tierd_piece piece = TIERD_PIECE_INIT;
	const char *state = NULL;
	uint64_t step;
	int r;

	if (!reader || !PyArg_ParseTupleAndKeywords(arguments, keywords, "|z", names, &state))
		return NULL;
	piece.state = state;
	READER_WAITING(self, r = tierd_reader_refresh(reader, state ? &piece : NULL, state && *state, &step));
	return r < 0 || PyErr_Occurred() ? core_raise(core_state_of(self), r)
					 : PyLong_FromUnsignedLongLong(step);
}

/* ---- Read ---- */

/* (unit, tensor, memory): a whole parameter, or its first elements. */
static size_t parse_read(PyObject *self, PyObject *item, struct tierd_read *read, PyObject **ret_memory)
{
	struct tierd_tensor tensor = TIERD_TENSOR_INIT;
	int r;

	if (!PyArg_ParseTuple(item, "IIO", &read->unit, &read->tensor, ret_memory))
		return 0;
	r = tierd_reader_tensor(((struct reader *)self)->reader, read->unit, read->tensor, &tensor);
	if (r < 0) {
		core_raise(core_state_of(self), r);
		return 0;
	}
	if (shape_element_bytes(tensor.format) == 0)
		PyErr_Format(PyExc_ValueError, "the tensor has a number format of a later tierd");
	return shape_element_bytes(tensor.format);
}

static PyObject *reader_read(PyObject *self, PyObject *sequence)
{
	struct tierd_reader *reader = reader_of(self);
	struct reads reads = READS_INIT;
	int r = 0;

	if (!reader)
		return NULL;
	if (reads_take(&reads, self, sequence, parse_read) == 0)
		READER_WAITING(self, r = tierd_reader_read_many(reader, reads.reads, (size_t)reads.count));
	reads_clear(&reads);
	return core_none(self, r);
}

/* ---- Memory ---- */

static PyObject *reader_memory(PyObject *self, PyObject *size)
{
	struct tierd_reader *reader = reader_of(self);
	size_t bytes = reader ? PyLong_AsSize_t(size) : 0;
	void *address = NULL;
	PyObject *object;
	int r;

	if (!reader || PyErr_Occurred())
		return NULL;
	READER_WAITING(self, r = tierd_reader_memory(reader, bytes, &address));
	if (r < 0)
		return core_raise(core_state_of(self), r);
	object = lent_object(core_state_of(self), address, bytes);
	if (PyErr_Occurred())
		Py_CLEAR(object);
	return object;
}

static PyObject *reader_renew(PyObject *self, PyObject *memory)
{
	struct tierd_reader *reader = reader_of(self);
	size_t size;
	void *address = reader ? lent_address(memory, core_state_of(self), &size) : NULL;
	int r;

	if (!address)
		return NULL;
	READER_WAITING(self, r = tierd_reader_memory(reader, size, &address));
	return core_none(self, r);
}

static PyMethodDef reader_methods[] = {
	{ "step", reader_step, METH_NOARGS, "The step to which everything that is read belongs." },
	{ "units", reader_units, METH_NOARGS,
	  "(name, tensors) of each unit; tensors are dicts with the fields of struct tierd_tensor." },
	{ "refresh", (PyCFunction)(void (*)(void))reader_refresh, METH_VARARGS | METH_KEYWORDS,
	  "refresh(state=None): moves on to the last applied step, and keeps what all tensors have of the "
	  "state, of none of them for \"\", of the same ones for None; the step's number." },
	{ "read", reader_read, METH_O,
	  "read(reads): reads parameters from (unit, tensor, memory) of each read; the memory is written." },
	{ "memory", reader_memory, METH_O,
	  "memory(size): memory of this process' own, to which tierd writes what is read there; once." },
	{ "renew", reader_renew, METH_O,
	  "renew(memory): such memory of an earlier reader is this one's, with the values that it has." },
	{ "close", reader_close, METH_NOARGS, "Gives up what was kept." },
	{ 0 },
};

static PyType_Slot reader_slots[] = {
	{ Py_tp_doc, "A look at a job, as tierd_reader_open(3) gives it: what is read is of one step." },
	{ Py_tp_dealloc, reader_dealloc },
	{ Py_tp_methods, reader_methods },
	{ 0, NULL },
};

PyType_Spec reader_spec = {
	.name = "tierd._core.Reader",
	.basicsize = sizeof(struct reader),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = reader_slots,
};
