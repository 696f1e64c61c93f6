#include <string.h>

#include "core/memory.h"

static bool is_contiguous(const DLTensor *tensor)
{
	int64_t stride = 1;

	/* Any strides are right for a tensor without elements. */
	for (int i = 0; i < tensor->ndim; i++)
		if (tensor->shape[i] == 0)
			return true;
	for (int i = tensor->ndim - 1; tensor->strides && i >= 0; i--) {
		if (tensor->shape[i] != 1 && tensor->strides[i] != stride)
			return false;
		stride *= tensor->shape[i];
	}
	return true;
}

static int take_capsule(PyObject *capsule, struct memory *ret_memory)
{
	const DLManagedTensor *managed = PyCapsule_GetPointer(capsule, "dltensor");
	const DLTensor *tensor = managed ? &managed->dl_tensor : NULL;
	size_t bytes;

	if (!tensor)
		return -1;
	if (tensor->device.device_type != kDLCPU || !is_contiguous(tensor)) {
		PyErr_SetString(PyExc_ValueError, "a contiguous tensor in the host's memory is wanted");
		return -1;
	}
	bytes = (size_t)tensor->dtype.bits * tensor->dtype.lanes / 8;
	for (int i = 0; i < tensor->ndim; i++)
		bytes *= tensor->shape[i];
	*ret_memory = (struct memory){ .data = (char *)tensor->data + tensor->byte_offset, .bytes = bytes };
	return 0;
}

int memory_take(PyObject *object, bool is_written, struct memory *ret_memory)
{
	struct memory memory = { 0 };

	if (PyCapsule_IsValid(object, "dltensor"))
		return take_capsule(object, ret_memory);
	if (PyObject_GetBuffer(object, &memory.buffer,
			       PyBUF_C_CONTIGUOUS | (is_written ? PyBUF_WRITABLE : 0)) < 0)
		return -1;
	memory.data = memory.buffer.buf;
	memory.bytes = memory.buffer.len;
	*ret_memory = memory;
	return 0;
}

void memory_drop(struct memory *memory)
{
	if (memory->buffer.obj)
		PyBuffer_Release(&memory->buffer);
}

int64_t memory_elements(const struct memory *memory, size_t element_bytes)
{
	if (memory->bytes % element_bytes == 0)
		return memory->bytes / element_bytes;
	PyErr_Format(PyExc_ValueError, "%zu bytes are no whole number of elements of %zu", memory->bytes,
		     element_bytes);
	return -1;
}
