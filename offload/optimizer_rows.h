/* The kernels of an optimizer at one level: to be included once by its source, after that has defined
 * OPTIMIZER (its name) and
 *
 *   static inline vector update(const struct optimizer_constants *constants, vector p, vector a,
 *                               float *const *slots, size_t i)
 *
 * which returns the new master of the elements from i on, given the old one and the summed gradients, and
 * moves their slots on. Defines struct optimizer's kernels as OPTIMIZER_KERNELS. */

#include "offload/optimizer.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

extern const struct optimizer VECTOR_EXPAND(OPTIMIZER, scalar);

ALWAYS_INLINE vector load_master(const struct optimizer_arrays *arrays, enum master_kind kind, size_t i)
{
	const uint16_t *high = arrays->parameter;
	const int16_t *low = arrays->master;

	if (kind == MASTER_BESIDE)
		return load_ahead((const float *)arrays->master + i);
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

/* What does not fill a vector. */
static void update_rest(const struct optimizer_constants *constants, size_t first, size_t count,
			const struct optimizer_arrays *arrays, enum master_kind kind)
{
	struct optimizer_arrays rest = {
		.parameter = (char *)arrays->parameter + first * master_parameter_bytes(kind),
		.master = arrays->master ? (char *)arrays->master + first * master_bytes(kind) : NULL,
		.gradient = arrays->gradient + first,
	};

	for (unsigned i = 0; i < OPTIMIZER_MAX_SLOTS; i++)
		rest.slots[i] = arrays->slots[i] ? arrays->slots[i] + first : NULL;
	VECTOR_EXPAND(OPTIMIZER, scalar).kernels[kind](constants, count - first, &rest);
}

/* Constants and pointers are copied, so that they stay in registers: no store can change a local. */
ALWAYS_INLINE void update_rows(const struct optimizer_constants *constants, size_t count,
			       const struct optimizer_arrays *arrays, enum master_kind kind)
{
	const struct optimizer_constants with = *constants;
	const struct optimizer_arrays at = *arrays;
	size_t i = 0;

	for (; i + VECTOR_LANES <= count; i += VECTOR_LANES) {
		vector p = load_master(&at, kind, i), a = load_ahead(at.gradient + i);

		store_master(&at, kind, i, update(&with, p, a, at.slots, i));
	}
	if (i < count)
		update_rest(constants, i, count, arrays, kind);
}

static void update_split(const struct optimizer_constants *constants, size_t count,
			 const struct optimizer_arrays *arrays)
{
	update_rows(constants, count, arrays, MASTER_SPLIT);
}

static void update_beside(const struct optimizer_constants *constants, size_t count,
			  const struct optimizer_arrays *arrays)
{
	update_rows(constants, count, arrays, MASTER_BESIDE);
}

static void update_itself(const struct optimizer_constants *constants, size_t count,
			  const struct optimizer_arrays *arrays)
{
	update_rows(constants, count, arrays, MASTER_ITSELF);
}

#define OPTIMIZER_KERNELS                                                                                    \
	{                                                                                                    \
		[MASTER_SPLIT] = update_split, [MASTER_BESIDE] = update_beside,                              \
		[MASTER_ITSELF] = update_itself                                                              \
	}
