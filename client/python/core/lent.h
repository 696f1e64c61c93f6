/* Memory that a reader's values are written to by tierd itself: it lives as long as its object, or a tensor
 * in it. */
#ifndef TIERD_CORE_LENT_H
#define TIERD_CORE_LENT_H

#include "core/core.h"

/* Takes the memory over, also when it fails: NULL with an exception set. */
PyObject *lent_object(struct core_state *state, void *address, size_t size);

/* NULL with an exception set: it is no such object. */
void *lent_address(PyObject *object, struct core_state *state, size_t *ret_size);

#endif
