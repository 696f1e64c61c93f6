/* The data path of a job: gather, gradients, push. */
#include <errno.h>
#include <stdlib.h>

#include "core/gather_on.h"
#include "core/hold.h"

/* ---- Gather ---- */

/* A hold on the unit with one share, its version beside it; NULL with an exception set. NULL without one: it
 * is not there, and nobody is to wait. */
static struct hold *gather(PyObject *self, PyObject *number, bool is_waiting, uint64_t *ret_version)
{
	struct tierd_job *job = job_of(self);
	struct tierd_view view;
	struct hold *hold;
	struct unit *unit;
	uint32_t index;
	int r;

	if (!job)
		return NULL;
	unit = job_unit((struct job *)self, number, &index);
	if (!unit)
		return NULL;
	r = tierd_gather_try(job, index, &view);
	if (r == -EAGAIN && !is_waiting)
		return NULL;
	if (r == -EAGAIN)
		JOB_WAITING(self, r = tierd_gather(job, index, &view));
	if (r < 0) {
		core_raise(core_state_of(self), r);
		return NULL;
	}
	hold = hold_new_lease(job, index, unit->shape, &view);
	if (!hold)
		tierd_release(job, index);
	*ret_version = view.version;
	return PyErr_Occurred() ? hold_drop(hold) : hold;
}

PyObject *job_gather(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	PyObject *lease;
	uint64_t version;
	struct hold *hold;

	if (!job_takes("gather", count, 1, 1))
		return NULL;
	hold = gather(self, arguments[0], true, &version);
	if (!hold)
		return NULL;
	lease = lease_object(core_state_of(self), hold, version, NULL);
	if (!lease)
		hold_drop(hold);
	return lease;
}

PyObject *job_capsules(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	PyObject *capsules;
	uint64_t version;
	struct hold *hold;

	if (!job_takes("capsules", count, 1, 2))
		return NULL;
	hold = gather(self, arguments[0], count < 2 || PyObject_IsTrue(arguments[1]), &version);
	if (!hold)
		return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
	capsules = hold_capsules(hold);
	hold_drop(hold);
	return capsules ? Py_BuildValue("(KN)", version, capsules) : NULL;
}

PyObject *job_capsule(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	unsigned long tensor;
	PyObject *capsule = NULL;
	uint64_t version;
	struct hold *hold;

	if (!job_takes("capsule", count, 2, 2))
		return NULL;
	tensor = PyLong_AsUnsignedLong(arguments[1]);
	if (PyErr_Occurred())
		return NULL;
	hold = gather(self, arguments[0], true, &version);
	if (!hold)
		return NULL;
	if (tensor < hold_count(hold))
		capsule = hold_capsule(hold, tensor);
	else
		PyErr_Format(PyExc_IndexError, "the unit has %u tensors", hold_count(hold));
	hold_drop(hold);
	return capsule ? Py_BuildValue("(KN)", version, capsule) : NULL;
}

PyObject *job_prefetch(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	struct tierd_job *job = job_of(self);
	uint32_t *units;
	int r;

	if (!job)
		return NULL;
	units = PyMem_Malloc((count + 1) * sizeof(*units));
	if (!units)
		return PyErr_NoMemory();
	for (Py_ssize_t i = 0; i < count; i++)
		if (!job_unit((struct job *)self, arguments[i], &units[i])) {
			PyMem_Free(units);
			return NULL;
		}
	JOB_BLOCKING(self, r = tierd_prefetch(job, units, count));
	PyMem_Free(units);
	return core_none(self, r);
}

/* ---- Gradients ---- */

/* In host memory: the GPU is -1. */
static PyObject *show_gradients(PyObject *self, PyObject *number, int gpu, void *stream)
{
	struct tierd_job *job = job_of(self);
	const uint32_t flags = TIERD_GRADIENTS_OVERWRITE;
	struct tierd_view view;
	struct unit *unit;
	uint32_t index;
	int r;

	unit = job ? job_unit((struct job *)self, number, &index) : NULL;
	if (!unit)
		return NULL;
	if (unit->gradients && gpu < 0 && hold_device(unit->gradients).device_type == kDLCPU)
		return hold_capsules(unit->gradients);
	if (gpu < 0)
		JOB_WAITING(self, r = tierd_gradients_with(job, index, flags, &view));
	else
		JOB_WAITING(self, r = tierd_gradients_on(job, index, flags, stream, &view));
	if (r < 0)
		return core_raise(core_state_of(self), r);
	/* Other threads may have defined units meanwhile, or have come for the same buffer. */
	unit = &((struct job *)self)->units[index];
	if (!unit->gradients)
		unit->gradients = hold_new_gradients(unit->shape, &view, gpu);
	if (unit->gradients)
		return PyErr_Occurred() ? NULL : hold_capsules(unit->gradients);
	JOB_BLOCKING(self, tierd_discard(job, index));
	return NULL;
}

PyObject *job_gradients(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	return job_takes("gradients", count, 1, 1) ? show_gradients(self, arguments[0], -1, NULL) : NULL;
}

PyObject *job_gradients_on(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	void *stream;

	if (!job_takes("gradients_on", count, 2, 2) || stream_take(arguments[1], &stream) < 0)
		return NULL;
	/* Of a job without a GPU it is refused. */
	return show_gradients(self, arguments[0],
			      ((struct job *)self)->gpu < 0 ? 0 : ((struct job *)self)->gpu, stream);
}

/* A unit whose gradient buffer nobody can write to any more; NULL with an exception set. */
static struct unit *find_given_up(PyObject *self, PyObject *number, uint32_t *ret_index)
{
	struct unit *unit = job_unit((struct job *)self, number, ret_index);

	if (!unit || !unit->gradients || !hold_is_shared(unit->gradients))
		return unit;
	core_raise_message(core_state_of(self), -EBUSY,
			   "a tensor still views the unit's gradient buffer: let go of it before the push");
	return NULL;
}

/* A flag for each tensor of the unit, set for these; for PyMem_Free(). NULL with an exception set. */
static bool *take_absent(const struct shape *shape, PyObject *const *numbers, Py_ssize_t count)
{
	bool *absent = PyMem_Calloc(shape->count + 1, sizeof(*absent));

	if (!absent)
		return (bool *)PyErr_NoMemory();
	for (Py_ssize_t i = 0; i < count; i++) {
		unsigned long tensor = PyLong_AsUnsignedLong(numbers[i]);

		if (!PyErr_Occurred() && tensor < shape->count) {
			absent[tensor] = true;
			continue;
		}
		if (!PyErr_Occurred())
			PyErr_Format(PyExc_IndexError, "the unit has %u tensors", shape->count);
		PyMem_Free(absent);
		return NULL;
	}
	return absent;
}

/* numbers: of absent tensors. stream: NULL from host memory. */
static PyObject *push(PyObject *self, PyObject *number, PyObject *const *numbers, Py_ssize_t count,
		      void *const *stream)
{
	struct tierd_job *job = job_of(self);
	bool *absent = NULL;
	struct unit *unit;
	uint32_t index, tensors;
	int r;

	unit = job ? find_given_up(self, number, &index) : NULL;
	if (!unit)
		return NULL;
	if (count > 0) {
		absent = take_absent(unit->shape, numbers, count);
		if (!absent)
			return NULL;
	}
	tensors = unit->shape->count;
	unit->gradients = hold_drop(unit->gradients);
	if (stream)
		JOB_BLOCKING(self, r = tierd_push_on(job, index, absent, tensors, *stream, NULL));
	else
		JOB_BLOCKING(self, r = tierd_push_with(job, index, absent, tensors, NULL));
	PyMem_Free(absent);
	if (r == 0)
		Py_RETURN_NONE;
	core_raise(core_state_of(self), r);
	/* Nobody here knows any more of a buffer that was not pushed. */
	JOB_BLOCKING(self, tierd_discard(job, index));
	return NULL;
}

PyObject *job_push(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	if (!job_takes("push", count, 1, PY_SSIZE_T_MAX))
		return NULL;
	return push(self, arguments[0], arguments + 1, count - 1, NULL);
}

PyObject *job_push_on(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	void *stream;

	if (!job_takes("push_on", count, 2, PY_SSIZE_T_MAX) || stream_take(arguments[1], &stream) < 0)
		return NULL;
	return push(self, arguments[0], arguments + 2, count - 2, &stream);
}

PyObject *job_discard(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	struct tierd_job *job = job_of(self);
	struct unit *unit;
	uint32_t index;
	int r;

	if (!job || !job_takes("discard", count, 1, 1))
		return NULL;
	unit = find_given_up(self, arguments[0], &index);
	if (!unit)
		return NULL;
	unit->gradients = hold_drop(unit->gradients);
	JOB_BLOCKING(self, r = tierd_discard(job, index));
	return core_none(self, r);
}
