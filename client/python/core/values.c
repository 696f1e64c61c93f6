/* Values of a job: elements of tensors and of what the optimizer keeps, and blobs. */
#include <errno.h>
#include <string.h>

#include "core/job.h"
#include "core/memory.h"

/* How many elements of so many bytes the memory has; -1 with an exception set: not a whole number of them. */
static int64_t elements_in(const struct memory *memory, size_t element_bytes)
{
	if (memory->bytes % element_bytes == 0)
		return memory->bytes / element_bytes;
	PyErr_Format(PyExc_ValueError, "%zu bytes are no whole number of elements of %zu", memory->bytes,
		     element_bytes);
	return -1;
}

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
	count = elements_in(&memory, bytes);
	if (count >= 0)
		JOB_BLOCKING(self, r = tierd_tensor_write(job, index, tensor, first, count, memory.data,
							  is_master));
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
	count = elements_in(&memory, sizeof(float));
	if (count >= 0)
		JOB_BLOCKING(self, r = tierd_tensor_write_state(job, index, tensor, name, step, first, count,
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
	count = elements_in(&memory, bytes);
	if (count >= 0)
		JOB_BLOCKING(self,
			     r = tierd_tensor_read(job, index, tensor, name, first, count, memory.data));
	memory_drop(&memory);
	return core_none(self, r);
}

/* ---- Many reads ---- */

struct reading {
	struct tierd_read *reads;
	struct memory *memories; /* of each read that was taken */
	Py_ssize_t count;
};

static int take_read(PyObject *self, PyObject *item, struct tierd_read *ret_read, struct memory *ret_memory)
{
	PyObject *number, *object;
	const char *state;
	unsigned tensor;
	struct unit *unit;
	uint32_t index;
	int64_t count;
	size_t bytes;

	if (!PyArg_ParseTuple(item, "OIsO", &number, &tensor, &state, &object))
		return -1;
	unit = job_unit((struct job *)self, number, &index);
	bytes = unit ? element_bytes_of(unit, tensor, strcmp(state, "parameter") != 0) : 0;
	if (bytes == 0 || memory_take(object, true, ret_memory) < 0)
		return -1;
	count = elements_in(ret_memory, bytes);
	if (count < 0) {
		memory_drop(ret_memory);
		return -1;
	}
	*ret_read = (struct tierd_read)TIERD_READ_INIT;
	ret_read->unit = index;
	ret_read->tensor = tensor;
	ret_read->state = state;
	ret_read->count = (uint64_t)count;
	ret_read->ret_data = ret_memory->data;
	return 0;
}

static void reading_clear(struct reading *reading)
{
	for (Py_ssize_t i = 0; i < reading->count; i++)
		memory_drop(&reading->memories[i]);
	PyMem_Free(reading->memories);
	PyMem_Free(reading->reads);
}

/* States are strings of the list's tuples, which live as long. -1 with an exception set */
static int take_reads(PyObject *self, PyObject *list, struct reading *reading)
{
	Py_ssize_t count = PyList_Size(list);

	reading->reads = PyMem_Calloc(count + 1, sizeof(*reading->reads));
	reading->memories = PyMem_Calloc(count + 1, sizeof(*reading->memories));
	if (!reading->reads || !reading->memories) {
		PyErr_NoMemory();
		return -1;
	}
	for (; reading->count < count; reading->count++)
		if (take_read(self, PyList_GetItem(list, reading->count), &reading->reads[reading->count],
			      &reading->memories[reading->count]) < 0)
			return -1;
	return 0;
}

PyObject *job_read_many(PyObject *self, PyObject *sequence)
{
	struct tierd_job *job = job_of(self);
	PyObject *list = job ? PySequence_List(sequence) : NULL;
	struct reading reading = { 0 };
	int r = 0;

	if (!list)
		return NULL;
	if (take_reads(self, list, &reading) == 0)
		JOB_BLOCKING(self, r = tierd_read_many(job, reading.reads, (size_t)reading.count));
	reading_clear(&reading);
	Py_DECREF(list);
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
	JOB_BLOCKING(self, r = tierd_blob_set(job, key, bytes.buf, (size_t)bytes.len,
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
	JOB_BLOCKING(self, r = tierd_blob_delete(job, key, is_shared ? TIERD_BLOB_SHARED : 0));
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
