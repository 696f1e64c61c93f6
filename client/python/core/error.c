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

bool core_waits_on(int r, int *timeout_ms)
{
	if (r != -ETIMEDOUT)
		return false;
	if (*timeout_ms >= 0)
		*timeout_ms -= core_turn(*timeout_ms);
	return PyErr_CheckSignals() == 0 && *timeout_ms != 0;
}

/* What libtierd says of forked processes is for who calls it by himself. */
PyObject *core_raise(struct core_state *state, int error)
{
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
