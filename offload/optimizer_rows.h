/* The kernels of an optimizer at one level: to be included once by its source, after that has defined
 * OPTIMIZER (its name) and
 *
 *   static inline vector update(const struct optimizer_constants *constants, vector p, vector a,
 *                               struct moments *moments, size_t i)
 *
 * which returns the new master of some elements, given the old one and the summed gradients, and moves their
 * moments, from i on, too. Defines struct optimizer's kernels as OPTIMIZER_KERNELS. */

#include "offload/moment_rows.h"
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
			const struct optimizer_arrays *arrays, enum master_kind kind,
			enum moment_format format)
{
	struct optimizer_arrays rest = {
		.parameter = (char *)arrays->parameter + first * master_parameter_bytes(kind),
		.master = arrays->master ? (char *)arrays->master + first * master_bytes(kind) : NULL,
		.gradient = arrays->gradient + first,
		.noise = arrays->noise,
	};

	rest.noise.first += first;
	for (unsigned i = 0; i < OPTIMIZER_MAX_SLOTS && arrays->slots[i]; i++)
		rest.slots[i] = (char *)arrays->slots[i] + moment_bytes(format, first);
	VECTOR_EXPAND(OPTIMIZER, scalar).kernels[format][kind](constants, count - first, &rest);
}

/* Constants and pointers are copied, so that they stay in registers: no store can change a local. */
ALWAYS_INLINE void update_rows(const struct optimizer_constants *constants, size_t count,
			       const struct optimizer_arrays *arrays, enum master_kind kind,
			       enum moment_format format)
{
	const struct optimizer_constants with = *constants;
	const struct optimizer_arrays at = *arrays;
	struct moments moments = { .format = format, .slots = { at.slots[0], at.slots[1] } };
	size_t i = 0;

	for (; i + VECTOR_LANES <= count; i += VECTOR_LANES) {
		vector p = load_master(&at, kind, i), a = load_ahead(at.gradient + i);

		if (format != MOMENTS_FP32)
			moments.noise = noise_at(at.noise.first + i, at.noise.keys);
		store_master(&at, kind, i, update(&with, p, a, &moments, i));
	}
	if (i < count)
		update_rest(constants, i, count, arrays, kind, format);
}

/* A last block that is not whole vectors is left to the scalars, whole: it has one scale. */
ALWAYS_INLINE void update_blocks(const struct optimizer_constants *constants, size_t count,
				 const struct optimizer_arrays *arrays, enum master_kind kind)
{
	const struct optimizer_constants with = *constants;
	const struct optimizer_arrays at = *arrays;
	struct moments moments = { .format = MOMENTS_INT8 };
	size_t first = 0;

	while (first < count) {
		size_t length = count - first < MOMENT_BLOCK ? count - first : MOMENT_BLOCK;

		if (length % VECTOR_LANES != 0)
			break;
		moments_begin_block(&moments, at.slots, first / MOMENT_BLOCK);
		for (size_t i = 0; i < length; i += VECTOR_LANES) {
			vector p = load_master(&at, kind, first + i), a = load_ahead(at.gradient + first + i);

			store_master(&at, kind, first + i, update(&with, p, a, &moments, i));
		}
		moments_end_block(&moments, &at.noise, first, length);
		first += length;
	}
	if (first < count)
		update_rest(constants, first, count, arrays, kind, MOMENTS_INT8);
}

#define UPDATE(name, kind, format)                                                                           \
	static void name(const struct optimizer_constants *constants, size_t count,                          \
			 const struct optimizer_arrays *arrays)                                              \
	{                                                                                                    \
		update_rows(constants, count, arrays, kind, format);                                         \
	}

#define UPDATE_BLOCKS(name, kind)                                                                            \
	static void name(const struct optimizer_constants *constants, size_t count,                          \
			 const struct optimizer_arrays *arrays)                                              \
	{                                                                                                    \
		update_blocks(constants, count, arrays, kind);                                               \
	}

UPDATE(update_split, MASTER_SPLIT, MOMENTS_FP32)
UPDATE(update_beside, MASTER_BESIDE, MOMENTS_FP32)
UPDATE(update_itself, MASTER_ITSELF, MOMENTS_FP32)
UPDATE(update_split_bf16, MASTER_SPLIT, MOMENTS_BF16)
UPDATE(update_beside_bf16, MASTER_BESIDE, MOMENTS_BF16)
UPDATE(update_itself_bf16, MASTER_ITSELF, MOMENTS_BF16)
UPDATE_BLOCKS(update_split_int8, MASTER_SPLIT)
UPDATE_BLOCKS(update_beside_int8, MASTER_BESIDE)
UPDATE_BLOCKS(update_itself_int8, MASTER_ITSELF)

/* clang-format off */
#define OPTIMIZER_KERNELS                                                                                    \
	{                                                                                                    \
		[MOMENTS_FP32] = { [MASTER_SPLIT] = update_split,                                            \
				   [MASTER_BESIDE] = update_beside,                                          \
				   [MASTER_ITSELF] = update_itself },                                        \
		[MOMENTS_BF16] = { [MASTER_SPLIT] = update_split_bf16,                                       \
				   [MASTER_BESIDE] = update_beside_bf16,                                     \
				   [MASTER_ITSELF] = update_itself_bf16 },                                   \
		[MOMENTS_INT8] = { [MASTER_SPLIT] = update_split_int8,                                       \
				   [MASTER_BESIDE] = update_beside_int8,                                     \
				   [MASTER_ITSELF] = update_itself_int8 }                                    \
	}
/* clang-format on */
