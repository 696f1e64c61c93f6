#include "core/gather_on.h"

#include <errno.h>

#include "core/hold.h"

/* ---- Streams ---- */

/* By the protocol: (version 0, the number). */
static PyObject *ask_for_number(PyObject *object)
{
	PyObject *pair = PyObject_CallMethod(object, "__cuda_stream__", NULL), *number = NULL;

	if (pair)
		number = PySequence_GetItem(pair, 1);
	Py_XDECREF(pair);
	return number;
}

int stream_take(PyObject *object, void **ret_stream)
{
	PyObject *number = PyLong_Check(object) ? Py_NewRef(object) : ask_for_number(object);
	void *stream = number ? PyLong_AsVoidPtr(number) : NULL;

	Py_XDECREF(number);
	if (PyErr_Occurred())
		return -1;
	/* Who gives the lease back may be another thread, and so another stream. */
	if ((uintptr_t)stream == 2) {
		PyErr_SetString(PyExc_ValueError,
				"stream 2 is each thread's own default stream: give a stream instead");
		return -1;
	}
	/* CU_STREAM_LEGACY is the default stream under another name. */
	*ret_stream = (uintptr_t)stream == 1 ? NULL : stream;
	return 0;
}

/* ---- Gather ---- */

PyObject *job_gather_on(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	struct tierd_job *job;
	PyObject *lease = NULL;
	struct tierd_view view;
	struct hold *hold;
	struct unit *unit;
	uint32_t index;
	void *stream;
	int r;

	if (!job_takes("gather_on", count, 2, 2) || stream_take(arguments[1], &stream) < 0)
		return NULL;
	/* Asking for the number may have closed the job. */
	job = job_of(self);
	unit = job ? job_unit((struct job *)self, arguments[0], &index) : NULL;
	if (!unit)
		return NULL;
	JOB_WAITING(self, r = tierd_gather_on(job, index, stream, &view));
	if (r < 0)
		return core_raise(core_state_of(self), r);
	/* Other threads may have defined units meanwhile. */
	unit = &((struct job *)self)->units[index];
	hold = hold_new_lease_on(job, index, unit->shape, &view, ((struct job *)self)->gpu, stream);
	if (!hold)
		JOB_BLOCKING(self, (void)tierd_release_on(job, index, stream));
	else if (!PyErr_Occurred())
		lease = lease_object(core_state_of(self), hold, view.version, self);
	if (!lease)
		hold_drop(hold);
	return lease;
}

int hold_use_on(struct hold *hold, PyObject *object, void *stream)
{
	struct tierd_job *job;
	struct tierd_view view;
	int r;

	if (hold_is_used_on(hold, stream))
		return 0;
	job = job_of(object);
	if (!job)
		return -1;
	JOB_WAITING(object, r = tierd_gather_on(job, hold_unit(hold), stream, &view));
	if (r < 0) {
		core_raise(core_state_of(object), r);
		return -1;
	}
	if (view.base == hold_base(hold) && !PyErr_Occurred() && hold_add_stream(hold, stream))
		return 0;
	JOB_BLOCKING(object, (void)tierd_release_on(job, hold_unit(hold), stream));
	if (!PyErr_Occurred())
		core_raise_message(core_state_of(object), -ESTALE,
				   "the job has its units elsewhere on the GPU since its connection was "
				   "lost: gather the unit again");
	return -1;
}
