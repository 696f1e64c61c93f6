/* Slots in the hands of a kernel, which knows their format when it is compiled. */
#ifndef TIERD_OFFLOAD_MOMENT_ROWS_H
#define TIERD_OFFLOAD_MOMENT_ROWS_H

#include "offload/optimizer.h"
#include "offload/vector.h"

struct moments {
	enum moment_format format;
	void *slots[OPTIMIZER_MAX_SLOTS];
	words noise; /* of the elements that are in hand */
};

static inline vector moment_load(const struct moments *moments, unsigned slot, size_t i)
{
	const uint16_t *narrow = moments->slots[slot];

	if (moments->format == MOMENTS_FP32)
		return load_ahead((const float *)moments->slots[slot] + i);
	prefetch(narrow + i);
	return load_bf16(narrow + i);
}

static inline void moment_store(const struct moments *moments, unsigned slot, size_t i, vector x)
{
	if (moments->format == MOMENTS_FP32)
		store((float *)moments->slots[slot] + i, x);
	else
		store_noisy((uint16_t *)moments->slots[slot] + i, x, moments->noise, slot);
}

#endif
