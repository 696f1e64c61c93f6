#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/fault.h"
#include "core/fields.h"
#include "core/hold.h"
#include "core/job.h"

/* ---- Life ---- */

PyObject *job_object(struct core_state *state, PyObject *node, struct tierd_job *job, int gpu)
{
	struct job *object = PyObject_New(struct job, state->job);

	if (!object)
		return NULL;
	object->node = Py_NewRef(node);
	object->job = job;
	object->gpu = gpu;
	object->calls = 0;
	object->units = NULL;
	object->unit_count = 0;
	return (PyObject *)object;
}

/* Whatever the end of the membership says, the handle is gone. */
static int leave(struct job *object, int (*how)(struct tierd_job *job))
{
	struct tierd_job *job = object->job;
	int r;

	object->job = NULL;
	fault_forget(object);
	/* An object that is collected does not hear Ctrl-C. */
	if (how == tierd_job_close)
		CORE_WAITING(r = how(job));
	else
		CORE_BLOCKING(r = how(job));
	/* A connection that no other job has ends with it. */
	Py_CLEAR(object->node);
	return r;
}

/* Whether somebody looks at a gradient buffer. */
static bool has_views(const struct job *job)
{
	for (uint32_t i = 0; i < job->unit_count; i++)
		if (job->units[i].gradients && hold_is_shared(job->units[i].gradients))
			return true;
	return false;
}

/* Nobody may be in a call of the job, nor look at a gradient buffer, whose memory would go. */
static int check_leaving(struct job *job)
{
	struct core_state *state = core_state_of((PyObject *)job);

	if (job->calls > 0) {
		core_raise_message(state, -EBUSY, "another thread is in a call of this job");
		return -1;
	}
	if (has_views(job)) {
		core_raise_message(
			state, -EBUSY,
			"a tensor still views a gradient buffer: let go of it before the job is closed");
		return -1;
	}
	return 0;
}

static PyObject *job_leave(PyObject *self, int (*how)(struct tierd_job *job))
{
	int r;

	if (!((struct job *)self)->job)
		Py_RETURN_NONE;
	if (check_leaving((struct job *)self) < 0)
		return NULL;
	r = leave((struct job *)self, how);
	return core_none(self, r);
}

static PyObject *job_close(PyObject *self, PyObject *unused)
{
	return job_leave(self, tierd_job_close);
}

static PyObject *job_detach(PyObject *self, PyObject *unused)
{
	return job_leave(self, tierd_job_detach);
}

/* ---- The end of an object whose gradient buffers are viewed ---- */

struct viewed_job {
	atomic_uint buffers;
	struct tierd_job *job;
	PyObject *node;
};

static int end_viewed(void *argument)
{
	struct viewed_job *viewed = argument;

	CORE_BLOCKING(tierd_job_detach(viewed->job));
	Py_DECREF(viewed->node);
	free(viewed);
	return 0;
}

/* In any thread, with or without the interpreter, at whose end the connection ends anyway. */
static void let_buffer_go(void *argument)
{
	struct viewed_job *viewed = argument;

	if (atomic_fetch_sub(&viewed->buffers, 1) == 1 && Py_IsInitialized())
		(void)Py_AddPendingCall(end_viewed, viewed);
}

/* Has the job end with the last view of any of its buffers. Without memory for that it stays. */
static void leave_to_views(struct job *job)
{
	struct viewed_job *viewed = malloc(sizeof(*viewed));
	PyObject *node = job->node;

	fault_forget(job);
	job->node = NULL;
	if (!viewed)
		return;
	viewed->job = job->job;
	viewed->node = node;
	atomic_init(&viewed->buffers, 0);
	for (uint32_t i = 0; i < job->unit_count; i++)
		viewed->buffers += job->units[i].gradients != NULL;
	for (uint32_t i = 0; i < job->unit_count; i++)
		if (job->units[i].gradients)
			hold_set_end(job->units[i].gradients, let_buffer_go, viewed);
}

static void job_dealloc(PyObject *self)
{
	struct job *job = (struct job *)self;
	PyTypeObject *type = Py_TYPE(self);

	if (job->job && has_views(job))
		leave_to_views(job);
	else if (job->job)
		leave(job, tierd_job_detach);
	for (uint32_t i = 0; i < job->unit_count; i++) {
		hold_drop(job->units[i].gradients);
		shape_drop(job->units[i].shape);
	}
	PyMem_Free(job->units);
	Py_XDECREF(job->node);
	PyObject_Free(self);
	Py_DECREF(type);
}

/* ---- Units ---- */

static int take_tensors(PyObject *sequence, struct tierd_tensor *tensors, Py_ssize_t count)
{
	for (Py_ssize_t i = 0; i < count; i++) {
		PyObject *dict = PySequence_GetItem(sequence, i);

		tensors[i] = (struct tierd_tensor)TIERD_TENSOR_INIT;
		if (!dict || fields_take(tensor_fields, dict, &tensors[i]) < 0) {
			Py_XDECREF(dict);
			return -1;
		}
		/* The sequence, and so the strings, are its owner's. */
		Py_DECREF(dict);
	}
	return 0;
}

/* Threads come here in another order than that in which the library has numbered their units. */
static int make_room(struct job *job, uint32_t count)
{
	struct unit *units;

	if (count <= job->unit_count)
		return 0;
	units = PyMem_Realloc(job->units, count * sizeof(*units));
	if (!units) {
		PyErr_NoMemory();
		return -1;
	}
	memset(units + job->unit_count, 0, (count - job->unit_count) * sizeof(*units));
	job->units = units;
	job->unit_count = count;
	return 0;
}

static int add_unit(struct job *job, uint32_t unit, const struct tierd_tensor *tensors, uint32_t count)
{
	if (make_room(job, unit + 1) < 0)
		return -1;
	job->units[unit].shape = shape_new(tensors, count);
	return job->units[unit].shape ? 0 : -1;
}

/* define(name, tensors) */
static PyObject *job_define(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	struct tierd_job *job = job_of(self);
	struct tierd_tensor *tensors;
	PyObject *list, *result = NULL;
	Py_ssize_t tensor_count;
	const char *name;
	uint32_t unit;
	int r;

	if (!job || !job_takes("define", count, 2, 2) ||
	    !(name = PyUnicode_AsUTF8AndSize(arguments[0], NULL)))
		return NULL;
	list = PySequence_List(arguments[1]);
	if (!list)
		return NULL;
	tensor_count = PyList_Size(list);
	tensors = PyMem_Calloc(tensor_count + 1, sizeof(*tensors));
	if (!tensors) {
		Py_DECREF(list);
		return PyErr_NoMemory();
	}
	if (take_tensors(list, tensors, tensor_count) == 0) {
		JOB_BLOCKING(self, r = tierd_unit_define(job, name, tensors, tensor_count, &unit));
		if (r < 0)
			core_raise(core_state_of(self), r);
		else if (add_unit((struct job *)self, unit, tensors, tensor_count) == 0)
			result = PyLong_FromUnsignedLong(unit);
	}
	PyMem_Free(tensors);
	Py_DECREF(list);
	return result;
}

/* ---- State ---- */

static PyObject *job_state(PyObject *self, PyObject *unused)
{
	struct tierd_job *job = job_of(self);
	struct tierd_job_state state;
	int r;

	if (!job)
		return NULL;
	JOB_BLOCKING(self, r = tierd_job_state(job, &state));
	return r < 0 ? core_raise(core_state_of(self), r) : fields_give(job_state_fields, &state);
}

static PyObject *job_ready(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	struct tierd_job *job = job_of(self);
	struct tierd_job_state state;
	int timeout_ms = -1, r;

	if (!job || !job_takes("ready", count, 0, 1))
		return NULL;
	if (count > 0 && !PyArg_Parse(arguments[0], "i", &timeout_ms))
		return NULL;
	JOB_WAITING(self, r = tierd_job_ready(job, timeout_ms, &state));
	return r < 0 || PyErr_Occurred() ? core_raise(core_state_of(self), r)
					 : fields_give(job_state_fields, &state);
}

/* The mappings of the newest connection. -1 with an exception set */
static int map(PyObject *self, struct tierd_mappings *ret_mappings)
{
	struct tierd_job *job = job_of(self);
	int r;

	*ret_mappings = (struct tierd_mappings)TIERD_MAPPINGS_INIT;
	if (!job)
		return -1;
	JOB_BLOCKING(self, r = tierd_mappings(job, ret_mappings));
	if (r < 0)
		core_raise(core_state_of(self), r);
	return r < 0 ? -1 : 0;
}

/* The number of the newest mappings. Those before them are watched still. */
static PyObject *job_watch(PyObject *self, PyObject *unused)
{
	struct tierd_mappings mappings;

	if (map(self, &mappings) < 0)
		return NULL;
	fault_watch(self, mappings.parameters, mappings.parameter_bytes);
	return PyLong_FromUnsignedLongLong(mappings.number);
}

/* For who pins them for a device. */
static PyObject *job_mappings(PyObject *self, PyObject *unused)
{
	struct tierd_mappings mappings;

	if (map(self, &mappings) < 0)
		return NULL;
	return Py_BuildValue("(KK)(KK)", (unsigned long long)(uintptr_t)mappings.parameters,
			     (unsigned long long)mappings.parameter_bytes,
			     (unsigned long long)(uintptr_t)mappings.gradients,
			     (unsigned long long)mappings.gradient_bytes);
}

static PyObject *job_undo_writes(PyObject *self, PyObject *unused)
{
	struct tierd_mappings mappings;

	if (map(self, &mappings) < 0)
		return NULL;
	return PyBool_FromLong(fault_undo(self, mappings.parameters, mappings.parameter_bytes));
}

static PyObject *job_leases(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	struct tierd_job *job = job_of(self);
	uint32_t unit = TIERD_ALL;
	uint64_t leases;
	int r;

	if (!job || !job_takes("leases", count, 0, 1) ||
	    (count > 0 && !job_unit((struct job *)self, arguments[0], &unit)))
		return NULL;
	JOB_BLOCKING(self, r = tierd_leases(job, unit, &leases));
	return r < 0 ? core_raise(core_state_of(self), r) : PyLong_FromUnsignedLongLong(leases);
}

static PyObject *job_statistics(PyObject *self, PyObject *unused)
{
	struct tierd_statistics statistics = TIERD_STATISTICS_INIT;
	struct tierd_job *job = job_of(self);
	int r;

	if (!job)
		return NULL;
	JOB_BLOCKING(self, r = tierd_statistics(job, &statistics));
	return r < 0 ? core_raise(core_state_of(self), r) : fields_give(statistics_fields, &statistics);
}

static PyObject *job_phase(PyObject *self, PyObject *name)
{
	struct tierd_job *job = job_of(self);
	const char *string = job ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
	int r;

	if (!string)
		return NULL;
	JOB_WAITING(self, r = tierd_phase(job, string));
	return core_none(self, r);
}

static PyObject *job_snapshot(PyObject *self, PyObject *name)
{
	struct tierd_job *job = job_of(self);
	const char *string = job ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL;
	int r;

	if (!string)
		return NULL;
	JOB_WAITING(self, r = tierd_snapshot(job, string));
	return core_none(self, r);
}

/* Gives back all gradient buffers of this rank that were not pushed. */
static PyObject *job_discard_all(PyObject *self, PyObject *unused)
{
	struct job *object = (struct job *)self;
	struct tierd_job *job = job_of(self);

	if (!job)
		return NULL;
	for (uint32_t i = 0; i < object->unit_count; i++) {
		if (!object->units[i].gradients)
			continue;
		object->units[i].gradients = hold_drop(object->units[i].gradients);
		JOB_BLOCKING(self, tierd_discard(job, i));
	}
	Py_RETURN_NONE;
}

#define FAST(name, function, text)                                                                           \
	{                                                                                                    \
		name, (PyCFunction)(void (*)(void))function, METH_FASTCALL, text                             \
	}
#define NAMED(name, function, text)                                                                          \
	{                                                                                                    \
		name, (PyCFunction)(void (*)(void))function, METH_VARARGS | METH_KEYWORDS, text              \
	}
static PyMethodDef job_methods[] = {
	FAST("define", job_define,
	     "define(name, tensors): the unit's number; the dicts have the fields of struct tierd_tensor."),
	FAST("ready", job_ready, "ready(timeout_ms=-1): waits for all ranks; the job's state as a dict."),
	{ "state", job_state, METH_NOARGS,
	  "The job's state, as a dict with the fields of struct tierd_job_state." },
	FAST("gather", job_gather, "gather(unit): a Lease."),
	FAST("capsules", job_capsules,
	     "capsules(unit, is_waiting=True): (version, a DLPack capsule for each tensor), which share one "
	     "lease; None: the unit is not there, and is_waiting is false."),
	FAST("capsule", job_capsule, "capsule(unit, tensor): (version, a DLPack capsule of that tensor)."),
	FAST("gather_on", job_gather_on,
	     "gather_on(unit, stream): a Lease on it in the memory of the job's GPU, for what the stream is "
	     "given from now on. stream: the number of a CUstream, 0 the default one; or what has "
	     "__cuda_stream__()."),
	FAST("leases", job_leases, "leases(unit=None): how many this rank has, on one unit or on all."),
	{ "watch", job_watch, METH_NOARGS,
	  "Has catch_writes() catch writes to this job's gathered memory; again after each ready(). "
	  "Returns the number of its mappings: others have a higher one." },
	{ "mappings", job_mappings, METH_NOARGS,
	  "(address, bytes) of the job's parameters and of its gradients, again after each ready()." },
	{ "undo_writes", job_undo_writes, METH_NOARGS,
	  "Undoes those that catch_writes() has caught. False: not all of them could be." },
	FAST("prefetch", job_prefetch, "prefetch(unit, …): these are wanted soon, in this order."),
	FAST("gradients", job_gradients,
	     "gradients(unit): a DLPack capsule for each tensor of the unit's gradient buffer, which has "
	     "to be written whole; None for frozen ones."),
	FAST("gradients_on", job_gradients_on,
	     "gradients_on(unit, stream): the same in the memory of the job's GPU. What the stream is given "
	     "from "
	     "now on may write there."),
	FAST("push", job_push,
	     "push(unit, tensor, …): hands the gradient buffer over, which has no gradients of these "
	     "tensors; "
	     "refused while a tensor views it."),
	FAST("push_on", job_push_on,
	     "push_on(unit, stream, tensor, …): the same with what the stream has been given so far, which "
	     "writes the whole buffer of gradients_on()."),
	FAST("discard", job_discard, "discard(unit): gives the gradient buffer back."),
	{ "discard_all", job_discard_all, METH_NOARGS,
	  "Gives back all gradient buffers that were not pushed." },
	FAST("step", job_step,
	     "step(rates, groups=None): a Ticket; dicts have the fields of struct tierd_rates and "
	     "tierd_group."),
	FAST("step_begin", job_step_begin, "step_begin(rates, groups, micro_batches): tells them early."),
	{ "step_finish", job_step_finish, METH_NOARGS, "Ends a step with the optimizer none." },
	FAST("groups_set", job_groups_set,
	     "groups_set(unit, group, …): the groups of the unit's tensors from the next step on."),
	FAST("groups_get", job_groups_get, "groups_get(unit): a tuple of them."),
	NAMED("write", job_write, "write(unit, tensor, memory, first=0, is_master=False)"),
	NAMED("write_state", job_write_state, "write_state(unit, tensor, state, step, memory, first=0)"),
	NAMED("read", job_read, "read(unit, tensor, state, memory, first=0)"),
	{ "read_many", job_read_many, METH_O,
	  "read_many([(unit, tensor, state, memory), …]): whole tensors, as many as fit with each request." },
	{ "write_begin", job_write_begin, METH_NOARGS,
	  "Waits until all ranks have called it; then values are written between two steps." },
	{ "write_end", job_write_end, METH_NOARGS,
	  "A Ticket, as of a step: all that was written counts when all ranks have called it." },
	{ "write_cancel", job_write_cancel, METH_NOARGS, "Nothing that any rank has written counts." },
	FAST("shard", job_shard, "shard(unit, tensor): (first, count) of this rank's elements."),
	NAMED("blob_set", job_blob_set, "blob_set(key, bytes, is_shared=False)"),
	NAMED("blob_get", job_blob_get, "blob_get(key, is_shared=False): bytes, or None."),
	NAMED("blob_delete", job_blob_delete, "blob_delete(key, is_shared=False)"),
	{ "phase", job_phase, METH_O, "phase(name): each has a gather order of its own." },
	{ "snapshot", job_snapshot, METH_O, "snapshot(name): keeps the last applied step." },
	{ "statistics", job_statistics, METH_NOARGS, "A dict with the fields of struct tierd_statistics." },
	{ "close", job_close, METH_NOARGS, "Leaves in good order: waits for this rank's steps." },
	{ "detach", job_detach, METH_NOARGS, "Leaves at once." },
	{ 0 },
};

static PyType_Slot job_slots[] = {
	{ Py_tp_doc, "This rank's membership of a job; its methods are the calls of tierd.h." },
	{ Py_tp_dealloc, job_dealloc },
	{ Py_tp_methods, job_methods },
	{ 0, NULL },
};

PyType_Spec job_spec = {
	.name = "tierd._core.Job",
	.basicsize = sizeof(struct job),
	.flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
	.slots = job_slots,
};
