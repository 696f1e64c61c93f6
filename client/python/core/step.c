/* Steps of a job, and writings, which take the place of one. */
#include "core/fields.h"
#include "core/job.h"

/* Rates by a dict, and groups by a sequence of dicts, for PyMem_Free(). -1 with an exception set. */
static int take_rates(PyObject *const *arguments, Py_ssize_t count, struct tierd_rates *ret_rates,
		      struct tierd_group **ret_groups)
{
	*ret_rates = (struct tierd_rates)TIERD_RATES_INIT;
	*ret_groups = NULL;
	if (fields_take(rates_fields, arguments[0], ret_rates) < 0)
		return -1;
	if (count < 2 || arguments[1] == Py_None)
		return 0;
	*ret_groups = groups_take(arguments[1], &ret_rates->group_count);
	ret_rates->groups = *ret_groups;
	return *ret_groups ? 0 : -1;
}

/* The result of a call that gives a ticket, or an exception if it has failed. */
static PyObject *give_ticket(PyObject *self, int r, struct tierd_ticket *ticket)
{
	PyObject *object;

	if (r < 0)
		return core_raise(core_state_of(self), r);
	object = ticket_object(core_state_of(self), ((struct job *)self)->node, ticket);
	if (!object)
		tierd_ticket_free(ticket);
	return object;
}

/* A call of the library that takes the job alone. */
static PyObject *call(PyObject *self, int (*function)(struct tierd_job *job))
{
	struct tierd_job *job = job_of(self);
	int r;

	if (!job)
		return NULL;
	JOB_WAITING(self, r = function(job));
	return core_none(self, r);
}

PyObject *job_step(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	struct tierd_job *job = job_of(self);
	struct tierd_ticket *ticket;
	struct tierd_group *groups;
	struct tierd_rates rates;
	int r;

	if (!job || !job_takes("step", count, 1, 2) || take_rates(arguments, count, &rates, &groups) < 0)
		return NULL;
	JOB_BLOCKING(self, r = tierd_step(job, &rates, &ticket));
	PyMem_Free(groups);
	return give_ticket(self, r, ticket);
}

PyObject *job_step_begin(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	struct tierd_job *job = job_of(self);
	struct tierd_group *groups;
	struct tierd_rates rates;
	unsigned long batches;
	int r;

	if (!job || !job_takes("step_begin", count, 3, 3))
		return NULL;
	batches = PyLong_AsUnsignedLong(arguments[2]);
	if (PyErr_Occurred() || take_rates(arguments, 2, &rates, &groups) < 0)
		return NULL;
	JOB_WAITING(self, r = tierd_step_begin(job, &rates, batches));
	PyMem_Free(groups);
	return core_none(self, r);
}

PyObject *job_step_finish(PyObject *self, PyObject *unused)
{
	return call(self, tierd_step_finish);
}

/* ---- Groups of a unit's tensors ---- */

/* For PyMem_Free(). NULL with an exception set. */
static uint32_t *take_numbers(PyObject *const *numbers, Py_ssize_t count)
{
	uint32_t *groups = PyMem_Calloc(count + 1, sizeof(*groups));

	if (!groups)
		return (uint32_t *)PyErr_NoMemory();
	for (Py_ssize_t i = 0; i < count; i++) {
		unsigned long group = PyLong_AsUnsignedLong(numbers[i]);

		/* The daemon refuses numbers that are too large. */
		groups[i] = group < UINT32_MAX ? group : UINT32_MAX;
		if (!PyErr_Occurred())
			continue;
		PyMem_Free(groups);
		return NULL;
	}
	return groups;
}

PyObject *job_groups_set(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	struct tierd_job *job = job_of(self);
	uint32_t index, *groups;
	int r;

	if (!job || !job_takes("groups_set", count, 1, PY_SSIZE_T_MAX) ||
	    !job_unit((struct job *)self, arguments[0], &index))
		return NULL;
	groups = take_numbers(arguments + 1, count - 1);
	if (!groups)
		return NULL;
	JOB_BLOCKING(self, r = tierd_groups_set(job, index, groups, count - 1));
	PyMem_Free(groups);
	return core_none(self, r);
}

static PyObject *tuple_of(const uint32_t *numbers, uint32_t count)
{
	PyObject *tuple = PyTuple_New(count);

	for (uint32_t i = 0; tuple && i < count; i++) {
		PyObject *number = PyLong_FromUnsignedLong(numbers[i]);

		if (number)
			PyTuple_SetItem(tuple, i, number);
		else
			Py_CLEAR(tuple);
	}
	return tuple;
}

PyObject *job_groups_get(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	struct tierd_job *job = job_of(self);
	uint32_t index, tensors, *groups;
	const struct unit *unit;
	PyObject *tuple = NULL;
	int r;

	if (!job || !job_takes("groups_get", count, 1, 1))
		return NULL;
	unit = job_unit((struct job *)self, arguments[0], &index);
	if (!unit)
		return NULL;
	tensors = unit->shape->count;
	groups = PyMem_Calloc(tensors + 1, sizeof(*groups));
	if (!groups)
		return PyErr_NoMemory();
	JOB_BLOCKING(self, r = tierd_groups_get(job, index, groups, tensors));
	if (r < 0)
		core_raise(core_state_of(self), r);
	else
		tuple = tuple_of(groups, tensors);
	PyMem_Free(groups);
	return tuple;
}

/* ---- Writing between two steps ---- */

PyObject *job_write_begin(PyObject *self, PyObject *unused)
{
	return call(self, tierd_write_begin);
}

PyObject *job_write_end(PyObject *self, PyObject *unused)
{
	struct tierd_job *job = job_of(self);
	struct tierd_ticket *ticket;
	int r;

	if (!job)
		return NULL;
	JOB_BLOCKING(self, r = tierd_write_end(job, &ticket));
	return give_ticket(self, r, ticket);
}

PyObject *job_write_cancel(PyObject *self, PyObject *unused)
{
	return call(self, tierd_write_cancel);
}
