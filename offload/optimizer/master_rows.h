/* Masters in the hands of a kernel, which knows how they are kept when it is compiled. */
#ifndef TIERD_OFFLOAD_MASTER_ROWS_H
#define TIERD_OFFLOAD_MASTER_ROWS_H

#include "offload/optimizer/optimizer.h"
#include "offload/optimizer/vector.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE vector load_master(const struct optimizer_arrays *arrays, enum master_kind kind, size_t i)
{
	const uint16_t *high = (const uint16_t *)arrays->parameter;
	const int16_t *low = (const int16_t *)arrays->master;

	if (kind == MASTER_BESIDE) {
		/* It is only written. Its lines must come all the same, before stores wait for them one by
		 * one; and a processor drops a request in advance when it has many, but no load. */
		prefetch(high + i);
		(void)*(const volatile uint16_t *)(high + i);
		return load_ahead((const float *)arrays->master + i);
	}
	if (kind == MASTER_ITSELF)
		return load_ahead((const float *)arrays->parameter + i);
	prefetch(high + i);
	prefetch(low + i);
	return join(high + i, low + i);
}

ALWAYS_INLINE void store_master(const struct optimizer_arrays *arrays, enum master_kind kind, size_t i,
				vector p)
{
	if (kind == MASTER_ITSELF)
		store((float *)arrays->parameter + i, p);
	else if (kind == MASTER_SPLIT)
		split(p, (uint16_t *)arrays->parameter + i, (int16_t *)arrays->master + i);
	else {
		store((float *)arrays->master + i, p);
		store_fp16((uint16_t *)arrays->parameter + i, p);
	}
}

#endif
