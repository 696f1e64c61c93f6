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

PyObject *core_raise(struct core_state *state, int error)
{
	return core_raise_message(state, error, tierd_message());
}
