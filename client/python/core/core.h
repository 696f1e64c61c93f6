/* The extension module tierd._core: libtierd for Python, by its stable ABI, and without any framework.
 *
 * It keeps the interpreter's lock where a call cannot block, and gives it up where it can. What the data path
 * hands out are views of the daemon's memory, by DLPack or the buffer protocol; each has a share of the hold
 * under it (hold.h), so no memory is used again while something looks at it. */
#ifndef TIERD_CORE_CORE_H
#define TIERD_CORE_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlpack/dlpack.h>
#include <stdbool.h>

#include "client/tierd.h"

struct core_state {
	PyObject *error, *stale_error;
	PyTypeObject *node, *job, *reader, *ticket, *lease, *view;
};

/* Of the module whose type the object has. */
static inline struct core_state *core_state_of(PyObject *object)
{
	return PyType_GetModuleState(Py_TYPE(object));
}

/* Gives the interpreter's lock up around a statement that can block. */
#define CORE_BLOCKING(statement)                                                                             \
	do {                                                                                                 \
		PyThreadState *thread_state = PyEval_SaveThread();                                           \
		statement;                                                                                   \
		PyEval_RestoreThread(thread_state);                                                          \
	} while (0)

/* What waits for others is called in turns of this length, and between them Ctrl-C is heard. */
#define CORE_TURN_MS 100

/* Whether a wait that has come to -ETIMEDOUT goes on: timeout_ms, negative for ever, loses a turn. Else it is
 * over, or an exception is set: somebody has pressed Ctrl-C. */
bool core_waits_on(int r, int *timeout_ms);

/* The length of the next turn. */
static inline int core_turn(int timeout_ms)
{
	return timeout_ms < 0 || timeout_ms > CORE_TURN_MS ? CORE_TURN_MS : timeout_ms;
}

/* How long calls of this connection wait that are not told. */
int node_timeout(PyObject *node);

/* Raises tierd.Error, or its subclass for -ESTALE, with what tierd_message() says. NULL */
PyObject *core_raise(struct core_state *state, int error);

/* What a call returns that has nothing else to say: None, unless it has failed or an exception is set. */
PyObject *core_none(PyObject *self, int r);

/* As core_raise(), with a message of our own. */
PyObject *core_raise_message(struct core_state *state, int error, const char *message);

/* The specifications of the types. */
extern PyType_Spec node_spec, job_spec, reader_spec, ticket_spec, lease_spec, view_spec;

/* ---- What one type makes of another ---- */

struct hold;

/* They take over the handle, or share. NULL with an exception set: it is the caller's still. */
PyObject *job_object(struct core_state *state, PyObject *node, struct tierd_job *job);
PyObject *reader_object(struct core_state *state, PyObject *node, struct tierd_reader *reader);
PyObject *ticket_object(struct core_state *state, PyObject *node, struct tierd_ticket *ticket);
PyObject *lease_object(struct core_state *state, struct hold *hold, uint64_t version);

#endif
