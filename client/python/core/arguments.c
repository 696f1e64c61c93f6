/* What a method of a job was called with: the job, and its arguments. */
#include <errno.h>

#include "core/job.h"

struct tierd_job *job_of(PyObject *self)
{
	struct tierd_job *job = ((struct job *)self)->job;

	if (!job)
		core_raise_message(core_state_of(self), -EBADF, "the job is closed");
	return job;
}

struct unit *job_unit(struct job *job, PyObject *number, uint32_t *ret_unit)
{
	unsigned long index = PyLong_AsUnsignedLong(number);

	if (PyErr_Occurred())
		return NULL;
	if (index >= job->unit_count || !job->units[index].shape) {
		PyErr_Format(PyExc_IndexError, "the job has %u units", job->unit_count);
		return NULL;
	}
	*ret_unit = index;
	return &job->units[index];
}

bool job_takes(const char *name, Py_ssize_t given, Py_ssize_t least, Py_ssize_t most)
{
	if (given >= least && given <= most)
		return true;
	PyErr_Format(PyExc_TypeError, "%s() was given %zd arguments", name, given);
	return false;
}
