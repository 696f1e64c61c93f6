/* Job: this rank's membership, with the shapes of its units. */
#ifndef TIERD_CORE_JOB_H
#define TIERD_CORE_JOB_H

#include "core/shape.h"

struct unit {
	struct shape *shape;	/* NULL: the thread that has defined it is about to say */
	struct hold *gradients; /* of the buffer that is held; else NULL */
};

struct job {
	PyObject object;
	PyObject *node;	       /* while the job is open */
	struct tierd_job *job; /* NULL: closed */
	int gpu;	       /* that it gathers on; -1: none */
	unsigned calls;	       /* that are under way without the interpreter's lock */
	struct unit *units;
	uint32_t unit_count;
};

/* The job behind an object, or NULL with an exception set: it is closed. */
struct tierd_job *job_of(PyObject *self);

/* What an argument that is a number of a unit means; NULL with an exception set. */
struct unit *job_unit(struct job *job, PyObject *number, uint32_t *ret_unit);

/* Around a call that can block: others run meanwhile, and cannot close the job. */
#define JOB_BLOCKING(self, statement)                                                                        \
	do {                                                                                                 \
		((struct job *)(self))->calls++;                                                             \
		CORE_BLOCKING(statement);                                                                    \
		((struct job *)(self))->calls--;                                                             \
	} while (0)

/* The same around one that may wait for others, as of CORE_WAITING(). */
#define JOB_WAITING(self, statement)                                                                         \
	do {                                                                                                 \
		((struct job *)(self))->calls++;                                                             \
		CORE_WAITING(statement);                                                                     \
		((struct job *)(self))->calls--;                                                             \
	} while (0)

/* Arguments by position: their number has to be right. */
bool job_takes(const char *name, Py_ssize_t given, Py_ssize_t least, Py_ssize_t most);

/* Methods, by file. */
PyObject *job_gather(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *job_capsules(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *job_capsule(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *job_gradients(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *job_gradients_on(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *job_push(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *job_push_on(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *job_discard(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *job_prefetch(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *job_gather_on(PyObject *self, PyObject *const *arguments, Py_ssize_t count);

PyObject *job_step(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *job_step_begin(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *job_step_finish(PyObject *self, PyObject *unused);
PyObject *job_groups_set(PyObject *self, PyObject *const *arguments, Py_ssize_t count);
PyObject *job_groups_get(PyObject *self, PyObject *const *arguments, Py_ssize_t count);

PyObject *job_write(PyObject *self, PyObject *arguments, PyObject *keywords);
PyObject *job_write_state(PyObject *self, PyObject *arguments, PyObject *keywords);
PyObject *job_read(PyObject *self, PyObject *arguments, PyObject *keywords);
PyObject *job_read_many(PyObject *self, PyObject *reads);
PyObject *job_write_begin(PyObject *self, PyObject *unused);
PyObject *job_write_end(PyObject *self, PyObject *unused);
PyObject *job_write_cancel(PyObject *self, PyObject *unused);
PyObject *job_shard(PyObject *self, PyObject *const *arguments, Py_ssize_t count);

PyObject *job_blob_set(PyObject *self, PyObject *arguments, PyObject *keywords);
PyObject *job_blob_get(PyObject *self, PyObject *arguments, PyObject *keywords);
PyObject *job_blob_delete(PyObject *self, PyObject *arguments, PyObject *keywords);

#endif
