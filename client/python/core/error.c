#include <errno.h>
#include <string.h>

#include "core/core.h"

PyObject *core_raise_message(struct core_state *state, int error, const char *message)
{
	PyObject *type = error == -ESTALE ? state->stale_error : state->error;
	PyObject *value = PyObject_CallFunction(type, "iN", -error,
						PyUnicode_DecodeUTF8(message, strlen(message), "replace"));

	if (value) {
		PyErr_SetObject(type, value);
		Py_DECREF(value);
	}
	return NULL;
}

_Thread_local PyThreadState *core_waiting;

bool core_is_interrupted(void *unused)
{
	bool is_interrupted;

	if (!core_waiting)
		return false;
	PyEval_RestoreThread(core_waiting);
	/* One that was heard in this call counts until its end. */
	is_interrupted = PyErr_Occurred() || PyErr_CheckSignals() < 0;
	PyEval_SaveThread();
	return is_interrupted;
}

/* What libtierd says of forked processes is for who calls it by himself. */
PyObject *core_raise(struct core_state *state, int error)
{
	if (PyErr_Occurred())
		return NULL;
	if (error == -ECHILD)
		return core_raise_message(state, error,
					  "a job of tierd cannot be used in a process that was forked, as "
					  "workers of a DataLoader "
					  "are: use the model in the process that called tierd.initialize() "
					  "or tierd.follow(), or "
					  "call tierd.follow() in this one");
	return core_raise_message(state, error, tierd_message());
}

PyObject *core_none(PyObject *self, int r)
{
	if (r < 0)
		core_raise(core_state_of(self), r);
	return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}
