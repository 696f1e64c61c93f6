/* Ticket: a step that is under way, or another asynchronous request. */
#include <errno.h>

#include "core/core.h"
#include "core/fields.h"

struct ticket {
	PyObject object;
	PyObject *node; /* which lives as long */
	struct tierd_ticket *ticket;
};

PyObject *ticket_object(struct core_state *state, PyObject *node, struct tierd_ticket *ticket)
{
	struct ticket *object = PyObject_New(struct ticket, state->ticket);

	if (!object)
		return NULL;
	object->node = Py_NewRef(node);
	object->ticket = ticket;
	return (PyObject *)object;
}

static void ticket_dealloc(PyObject *self)
{
	struct ticket *ticket = (struct ticket *)self;
	PyTypeObject *type = Py_TYPE(self);

	CORE_BLOCKING(tierd_ticket_free(ticket->ticket));
	Py_DECREF(ticket->node);
	PyObject_Free(self);
	Py_DECREF(type);
}

static PyObject *ticket_wait(PyObject *self, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = { "event", "timeout_ms", NULL };
	int event = TIERD_DONE, timeout_ms = -1, r;

	if (!PyArg_ParseTupleAndKeywords(arguments, keywords, "|ii", names, &event, &timeout_ms))
		return NULL;
	CORE_WAITING(r = tierd_ticket_wait(((struct ticket *)self)->ticket, event, timeout_ms));
	if (PyErr_Occurred())
		return NULL;
	if (r == -ETIMEDOUT)
		Py_RETURN_FALSE;
	if (r < 0)
		return core_raise(core_state_of(self), r);
	Py_RETURN_TRUE;
}

static PyObject *ticket_result(PyObject *self, PyObject *unused)
{
	struct tierd_step_result result;
	int r;

	CORE_BLOCKING(r = tierd_ticket_step_result(((struct ticket *)self)->ticket, &result));
	return r < 0 ? core_raise(core_state_of(self), r) : fields_give(step_result_fields, &result);
}

static PyMethodDef ticket_methods[] = {
	{ "wait", (PyCFunction)(void (*)(void))ticket_wait, METH_VARARGS | METH_KEYWORDS,
	  "wait(event=DONE, timeout_ms=-1): False after timeout_ms; 0 only looks. Raises what the request "
	  "failed with." },
	{ "result", ticket_result, METH_NOARGS,
	  "What the step did, as a dict with the fields of struct tierd_step_result." },
	{ 0 },
};

static PyType_Slot ticket_slots[] = {
	{ Py_tp_doc, "An asynchronous request. One that is dropped goes on." },
	{ Py_tp_dealloc, ticket_dealloc },
	{ Py_tp_methods, ticket_methods },
	{ 0, NULL },
};

PyType_Spec ticket_spec = {
	.name = "tierd._core.Ticket",
	.basicsize = sizeof(struct ticket),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = ticket_slots,
};
