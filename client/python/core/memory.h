/* Memory that a caller gives: anything with the buffer protocol, or a DLPack capsule of a contiguous tensor
 * in the host's memory. */
#ifndef TIERD_CORE_MEMORY_H
#define TIERD_CORE_MEMORY_H

#include "core/core.h"

struct memory {
	void *data;
	size_t bytes;
	Py_buffer buffer; /* whose obj is NULL for a capsule */
};

/* -1 with an exception set: it is neither, or not contiguous, or cannot be written though it has to be. The
 * capsule stays its owner's. */
int memory_take(PyObject *object, bool is_written, struct memory *ret_memory);
void memory_drop(struct memory *memory);

/* How many elements of so many bytes it has; -1 with an exception set: not a whole number of them. */
int64_t memory_elements(const struct memory *memory, size_t element_bytes);

#endif
