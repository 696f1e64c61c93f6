#include <stdlib.h>

#include "core/shape.h"

static const struct {
	DLDataType type;
	size_t bytes;
} formats[] = {
	[TIERD_FP32] = { { kDLFloat, 32, 1 }, 4 },
	[TIERD_BF16] = { { kDLBfloat, 16, 1 }, 2 },
	[TIERD_FP16] = { { kDLFloat, 16, 1 }, 2 },
	[TIERD_BYTES] = { { kDLUInt, 8, 1 }, 1 },
};

size_t shape_element_bytes(uint32_t format)
{
	return format < sizeof(formats) / sizeof(formats[0]) ? formats[format].bytes : 0;
}

struct shape *shape_new(const struct tierd_tensor *tensors, uint32_t count)
{
	struct shape *shape = calloc(1, sizeof(*shape) + count * sizeof(shape->tensors[0]));

	if (!shape) {
		PyErr_NoMemory();
		return NULL;
	}
	atomic_init(&shape->shares, 1);
	shape->count = count;
	for (uint32_t i = 0; i < count; i++) {
		struct tensor_shape *tensor = &shape->tensors[i];

		/* The library has taken both. */
		tensor->type = formats[tensors[i].format].type;
		tensor->gradient_type =
			tensors[i].gradient_format == TIERD_FP32 ? formats[TIERD_FP32].type : tensor->type;
		tensor->dimensions = tensors[i].dimensions;
		tensor->bytes = formats[tensors[i].format].bytes;
		for (int k = 0; k < tensor->dimensions; k++) {
			tensor->sizes[k] = tensors[i].shape[k];
			tensor->bytes *= tensors[i].shape[k];
		}
	}
	return shape;
}

struct shape *shape_share(struct shape *shape)
{
	atomic_fetch_add(&shape->shares, 1);
	return shape;
}

struct shape *shape_drop(struct shape *shape)
{
	if (shape && atomic_fetch_sub(&shape->shares, 1) == 1)
		free(shape);
	return NULL;
}
