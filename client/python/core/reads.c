#include "core/reads.h"

static int take(PyObject *self, PyObject *item, reads_parse *parse, struct tierd_read *ret_read,
		struct memory *ret_memory)
{
	PyObject *object;
	size_t bytes;
	int64_t count;

	*ret_read = (struct tierd_read)TIERD_READ_INIT;
	bytes = parse(self, item, ret_read, &object);
	if (bytes == 0 || memory_take(object, true, ret_memory) < 0)
		return -1;
	count = memory_elements(ret_memory, bytes);
	if (count < 0)
		return -1;
	ret_read->count = (uint64_t)count;
	ret_read->ret_data = ret_memory->data;
	return 0;
}

int reads_take(struct reads *reads, PyObject *self, PyObject *sequence, reads_parse *parse)
{
	reads->items = PySequence_List(sequence);
	if (!reads->items)
		return -1;
	reads->count = PyList_Size(reads->items);
	reads->reads = PyMem_Calloc(reads->count + 1, sizeof(*reads->reads));
	reads->memories = PyMem_Calloc(reads->count + 1, sizeof(*reads->memories));
	if (!reads->reads || !reads->memories) {
		PyErr_NoMemory();
		return -1;
	}
	for (Py_ssize_t i = 0; i < reads->count; i++)
		if (take(self, PyList_GetItem(reads->items, i), parse, &reads->reads[i],
			 &reads->memories[i]) < 0)
			return -1;
	return 0;
}

void reads_clear(struct reads *reads)
{
	for (Py_ssize_t i = 0; reads->memories && i < reads->count; i++)
		memory_drop(&reads->memories[i]);
	PyMem_Free(reads->memories);
	PyMem_Free(reads->reads);
	Py_XDECREF(reads->items);
}
