/* A unit's shape: what its definition says of its tensors, for all that look at one. */
#ifndef TIERD_CORE_SHAPE_H
#define TIERD_CORE_SHAPE_H

#include <stdatomic.h>

#include "core/core.h"

struct tensor_shape {
	int64_t sizes[TIERD_MAX_DIMENSIONS];
	int dimensions;
	uint64_t bytes;
	DLDataType type, gradient_type;
};

/* Never changed after its definition, so it is read in any thread. */
struct shape {
	atomic_uint shares;
	uint32_t count;
	struct tensor_shape tensors[];
};

/* NULL with an exception set. */
struct shape *shape_new(const struct tierd_tensor *tensors, uint32_t count);
struct shape *shape_share(struct shape *shape);
/* NULL */
struct shape *shape_drop(struct shape *shape /* or NULL */);

/* Bytes of an element in the library's format. 0: there is no such format. */
size_t shape_element_bytes(uint32_t format);

#endif
