/* Reads: what many pieces of one call are read into. */
#ifndef TIERD_CORE_READS_H
#define TIERD_CORE_READS_H

#include "core/memory.h"

struct reads {
	struct tierd_read *reads;
	struct memory *memories; /* of each of them */
	Py_ssize_t count;
	PyObject *items; /* whose strings and memory they name */
};
#define READS_INIT                                                                                           \
	{                                                                                                    \
		NULL, NULL, 0, NULL                                                                          \
	}

/* Says of an item which tensor and state it names, and where it has its memory: the bytes of an element; 0
 * with an exception set. */
typedef size_t reads_parse(PyObject *self, PyObject *item, struct tierd_read *read, PyObject **ret_memory);

/* Each takes as many elements as its memory has. -1 with an exception set; it is to be cleared in any case.
 */
int reads_take(struct reads *reads, PyObject *self, PyObject *sequence, reads_parse *parse);
void reads_clear(struct reads *reads);

#endif
