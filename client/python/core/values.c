/* Values of a job: elements of tensors and of what the optimizer keeps, and blobs. */
#include <errno.h>
#include <string.h>

#include "core/job.h"
#include "core/reads.h"

static size_t element_bytes_of(const struct unit *unit, uint32_t tensor, bool is_fp32)
{
	if (tensor < unit->shape->count)
		return is_fp32 ? sizeof(float) : unit->shape->tensors[tensor].type.bits / 8;
	PyErr_Format(PyExc_IndexError, "the unit has %u tensors", unit->shape->count);
	return 0;
}

PyObject *job_write(PyObject *self, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = { "unit", "tensor", "memory", "first", "is_master", NULL };
	struct tierd_job *job = job_of(self);
	PyObject *number, *object;
	unsigned long long first = 0;
	unsigned tensor;
	int is_master = 0, r = 0;
	struct memory memory;
	struct unit *unit;
	int64_t count;
	uint32_t index;
	size_t bytes;

	if (!job || !PyArg_ParseTupleAndKeywords(arguments, keywords, "OIO|Kp", names, &number, &tensor,
						 &object, &first, &is_master))
		return NULL;
	unit = job_unit((struct job *)self, number, &index);
	bytes = unit ? element_bytes_of(unit, tensor, is_master) : 0;
	if (bytes == 0 || memory_take(object, false, &memory) < 0)
		return NULL;
	count = memory_elements(&memory, bytes);
	if (count >= 0)
		JOB_WAITING(self,
			    r = tierd_tensor_write(job, index, tensor, first, count, memory.data, is_master));
	memory_drop(&memory);
	return core_none(self, r);
}

PyObject *job_write_state(PyObject *self, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = { "unit", "tensor", "state", "step", "memory", "first", NULL };
	struct tierd_job *job = job_of(self);
	unsigned long long first = 0, step;
	PyObject *number, *object;
	struct memory memory;
	const char *name;
	unsigned tensor;
	int64_t count;
	uint32_t index;
	int r = 0;

	if (!job || !PyArg_ParseTupleAndKeywords(arguments, keywords, "OIsKO|K", names, &number, &tensor,
						 &name, &step, &object, &first))
		return NULL;
	if (!job_unit((struct job *)self, number, &index) || memory_take(object, false, &memory) < 0)
		return NULL;
	count = memory_elements(&memory, sizeof(float));
	if (count >= 0)
		JOB_WAITING(self, r = tierd_tensor_write_state(job, index, tensor, name, step, first, count,
							       memory.data));
	memory_drop(&memory);
	return core_none(self, r);
}

PyObject *job_read(PyObject *self, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = { "unit", "tensor", "state", "memory", "first", NULL };
	struct tierd_job *job = job_of(self);
	unsigned long long first = 0;
	PyObject *number, *object;
	struct memory memory;
	struct unit *unit;
	const char *name;
	unsigned tensor;
	int64_t count;
	uint32_t index;
	size_t bytes;
	int r = 0;

	if (!job || !PyArg_ParseTupleAndKeywords(arguments, keywords, "OIsO|K", names, &number, &tensor,
						 &name, &object, &first))
		return NULL;
	unit = job_unit((struct job *)self, number, &index);
	bytes = unit ? element_bytes_of(unit, tensor, strcmp(name, "parameter") != 0) : 0;
	if (bytes == 0 || memory_take(object, true, &memory) < 0)
		return NULL;
	count = memory_elements(&memory, bytes);
	if (count >= 0)
		JOB_WAITING(self, r = tierd_tensor_read(job, index, tensor, name, first, count, memory.data));
	memory_drop(&memory);
	return core_none(self, r);
}

/* ---- Many reads ---- */

/* (unit, tensor, state, memory) */
static size_t parse_read(PyObject *self, PyObject *item, struct tierd_read *read, PyObject **ret_memory)
{
	struct unit *unit;
	PyObject *number;

	if (!PyArg_ParseTuple(item, "OIsO", &number, &read->tensor, &read->state, ret_memory))
		return 0;
	unit = job_unit((struct job *)self, number, &read->unit);
	return unit ? element_bytes_of(unit, read->tensor, strcmp(read->state, "parameter") != 0) : 0;
}

PyObject *job_read_many(PyObject *self, PyObject *sequence)
{
	struct tierd_job *job = job_of(self);
	struct reads reads = READS_INIT;
	int r = 0;

	if (!job)
		return NULL;
	if (reads_take(&reads, self, sequence, parse_read) == 0)
		JOB_WAITING(self, r = tierd_read_many(job, reads.reads, (size_t)reads.count));
	reads_clear(&reads);
	return core_none(self, r);
}

/* ---- Shards ---- */

PyObject *job_shard(PyObject *self, PyObject *const *arguments, Py_ssize_t count)
{
	struct tierd_job *job = job_of(self);
	uint64_t first, elements;
	unsigned long tensor;
	uint32_t index;
	int r;

	if (!job || !job_takes("shard", count, 2, 2) || !job_unit((struct job *)self, arguments[0], &index))
		return NULL;
	tensor = PyLong_AsUnsignedLong(arguments[1]);
	if (PyErr_Occurred())
		return NULL;
	JOB_BLOCKING(self, r = tierd_tensor_shard(job, index, tensor, &first, &elements));
	return r < 0 ? core_raise(core_state_of(self), r) : Py_BuildValue("(KK)", first, elements);
}

/* ---- Blobs ---- */

PyObject *job_blob_set(PyObject *self, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = { "key", "bytes", "is_shared", NULL };
	struct tierd_job *job = job_of(self);
	int is_shared = 0, r;
	const char *key;
	Py_buffer bytes;

	if (!job ||
	    !PyArg_ParseTupleAndKeywords(arguments, keywords, "sy*|p", names, &key, &bytes, &is_shared))
		return NULL;
	JOB_WAITING(self, r = tierd_blob_set(job, key, bytes.buf, (size_t)bytes.len,
					     is_shared ? TIERD_BLOB_SHARED : 0));
	PyBuffer_Release(&bytes);
	return core_none(self, r);
}

PyObject *job_blob_delete(PyObject *self, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = { "key", "is_shared", NULL };
	struct tierd_job *job = job_of(self);
	int is_shared = 0, r;
	const char *key;

	if (!job || !PyArg_ParseTupleAndKeywords(arguments, keywords, "s|p", names, &key, &is_shared))
		return NULL;
	JOB_WAITING(self, r = tierd_blob_delete(job, key, is_shared ? TIERD_BLOB_SHARED : 0));
	return core_none(self, r);
}

PyObject *job_blob_get(PyObject *self, PyObject *arguments, PyObject *keywords)
{
	static char *names[] = { "key", "is_shared", NULL };
	struct tierd_job *job = job_of(self);
	PyObject *bytes = NULL, *shorter;
	size_t size = 0, capacity = 0;
	int is_shared = 0, r;
	const char *key;
	char *place;

	if (!job || !PyArg_ParseTupleAndKeywords(arguments, keywords, "s|p", names, &key, &is_shared))
		return NULL;
	/* It may be another one from one look to the next. */
	do {
		Py_XDECREF(bytes);
		bytes = PyBytes_FromStringAndSize(NULL, capacity);
		if (!bytes)
			return NULL;
		place = PyBytes_AsString(bytes);
		JOB_BLOCKING(self, r = tierd_blob_get(job, key, place, capacity, &size,
						      is_shared ? TIERD_BLOB_SHARED : 0));
		if (r == 0 && size > capacity)
			r = -ERANGE;
		capacity = size;
	} while (r == -ERANGE);
	if (r == 0 && (size_t)PyBytes_Size(bytes) == size)
		return bytes;
	shorter = r == 0 ? PyBytes_FromStringAndSize(place, size) : NULL;
	Py_DECREF(bytes);
	if (r == -ENOENT)
		Py_RETURN_NONE;
	return r < 0 ? core_raise(core_state_of(self), r) : shorter;
}
