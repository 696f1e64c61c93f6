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
	PyTypeObject *node, *job, *reader, *ticket, *lease, *view, *memory;
};

/* The state of the module that has the object's type. */
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

/* The same around one that may wait for others, in which Ctrl-C is heard: an exception may be set afterwards,
 * whatever the statement has come to. */
#define CORE_WAITING(statement)                                                                              \
	do {                                                                                                 \
		PyThreadState *outer_wait = core_waiting;                                                    \
		core_waiting = PyThreadState_Get();                                                          \
		CORE_BLOCKING(statement);                                                                    \
		core_waiting = outer_wait;                                                                   \
	} while (0)

/* The same for who may be called with the lock or without, as an owner of a tensor may give it back: gives it
 * up if this thread has it, and takes it back then. */
PyThreadState *core_give_up(void);
void core_take_back(PyThreadState *state /* or NULL */);
/* With the module: finds out how a thread knows. */
void core_find_lock(void);

/* The state of a thread that hears Ctrl-C; else NULL. */
extern _Thread_local PyThreadState *core_waiting;

/* For struct tierd_connect_options. */
bool core_is_interrupted(void *unused);

/* Raises tierd.Error, or its subclass for -ESTALE, with what tierd_message() says. An exception that is set
 * already is the cause. NULL */
PyObject *core_raise(struct core_state *state, int error);

/* What a call returns that has nothing else to say: None, unless it has failed or an exception is set. */
PyObject *core_none(PyObject *self, int r);

/* As core_raise(), with a message of our own. */
PyObject *core_raise_message(struct core_state *state, int error, const char *message);

/* The specifications of the types. */
extern PyType_Spec node_spec, job_spec, reader_spec, ticket_spec, lease_spec, view_spec, memory_spec;

/* ---- What one type makes of another ---- */

struct hold;

/* They take over the handle, or share. NULL with an exception set: it is the caller's still. */
PyObject *job_object(struct core_state *state, PyObject *node, struct tierd_job *job, int gpu);
PyObject *reader_object(struct core_state *state, PyObject *node, struct tierd_reader *reader);
PyObject *ticket_object(struct core_state *state, PyObject *node, struct tierd_ticket *ticket);
/* job: of a hold in the memory of a GPU, which the lease keeps; else NULL. */
PyObject *lease_object(struct core_state *state, struct hold *hold, uint64_t version, PyObject *job);

#endif
