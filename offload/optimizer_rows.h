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

/* Of one vector. */
ALWAYS_INLINE void update_row(const struct optimizer_constants *with, const struct optimizer_arrays *at,
			      enum master_kind kind, struct moments *moments, size_t i)
{
	vector p = load_master(at, kind, i), a = load_ahead(at->gradient + i);

	moments->side = SIDE_WHOLE;
	if (moments->format != MOMENTS_FP32)
		moments->noise = noise_at(at->noise.first + i, lanes(), at->noise.keys);
	store_master(at, kind, i, update(with, p, a, moments, i));
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

	for (; i + VECTOR_LANES <= count; i += VECTOR_LANES)
		update_row(&with, &at, kind, &moments, i);
	if (i < count)
		update_rest(constants, i, count, arrays, kind, format);
}

/* Of the even elements or the odd ones of two vectors. */
ALWAYS_INLINE vector update_side(const struct optimizer_constants *with, const struct moment_noise *noise,
				 enum moment_side side, vector p, vector a, struct moments *moments, size_t i)
{
	words behind = side == SIDE_EVEN ? even_lanes() : add(even_lanes(), all_words(1));

	moments->side = side;
	moments->noise = noise_at(noise->first + i, behind, noise->keys);
	return update(with, p, a, moments, i);
}

ALWAYS_INLINE void update_pair(const struct optimizer_constants *with, const struct optimizer_arrays *at,
			       struct moments *moments, size_t i)
{
	uint16_t *highs = (uint16_t *)at->parameter + i, *lows = (uint16_t *)at->master + i;
	const float *gradient = at->gradient + i;
	words high, low, even, odd;
	vector p, q, a, b;

	prefetch(highs);
	prefetch(lows);
	prefetch(gradient);
	prefetch(gradient + VECTOR_LANES);
	high = load_pairs(highs);
	low = load_pairs(lows);
	load_apart(gradient, &a, &b);
	p = from_bits(add(shift_left(high, 16), shift_signed(shift_left(low, 16), 16)));
	q = from_bits(add(upper_half(high), shift_signed(low, 16)));
	p = update_side(with, &at->noise, SIDE_EVEN, p, a, moments, i);
	q = update_side(with, &at->noise, SIDE_ODD, q, b, moments, i);
	even = shift_right(carry_half(p), 16);
	odd = upper_half(carry_half(q));
	store_pairs(highs, either(even, odd));
	store_pairs(lows, either(lower_half(bits_of(p)), shift_left(bits_of(q), 16)));
}

/* Where all is kept in halves two vectors are taken apart as they lie there, instead of widening each array
 * and packing it again, which would cost as much as the arithmetic. Pairs begin where no vector of noise
 * crosses 2^32. */
static void update_pairs(const struct optimizer_constants *constants, size_t count,
			 const struct optimizer_arrays *arrays)
{
	const struct optimizer_constants with = *constants;
	const struct optimizer_arrays at = *arrays;
	struct moments moments = { .format = MOMENTS_BF16, .slots = { at.slots[0], at.slots[1] } };
	size_t i = 0;

	if (at.noise.first % (2 * VECTOR_LANES) == VECTOR_LANES && VECTOR_LANES <= count) {
		update_row(&with, &at, MASTER_SPLIT, &moments, i);
		i += VECTOR_LANES;
	}
	for (; i + 2 * VECTOR_LANES <= count; i += 2 * VECTOR_LANES)
		update_pair(&with, &at, &moments, i);
	for (; i + VECTOR_LANES <= count; i += VECTOR_LANES)
		update_row(&with, &at, MASTER_SPLIT, &moments, i);
	if (i < count)
		update_rest(constants, i, count, arrays, MASTER_SPLIT, MOMENTS_BF16);
}

/* A last block that is not whole vectors is left to the scalars, whole: it has one scale. */
ALWAYS_INLINE void update_blocks(const struct optimizer_constants *constants, size_t count,
				 const struct optimizer_arrays *arrays, enum master_kind kind)
{
	const struct optimizer_constants with = *constants;
	const struct optimizer_arrays at = *arrays;
	struct moment_block blocks[OPTIMIZER_MAX_SLOTS];
	struct moments moments = { .format = MOMENTS_INT8, .blocks = blocks };
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
		[MOMENTS_BF16] = { [MASTER_SPLIT] = update_pairs,                                            \
				   [MASTER_BESIDE] = update_beside_bf16,                                     \
				   [MASTER_ITSELF] = update_itself_bf16 },                                   \
		[MOMENTS_INT8] = { [MASTER_SPLIT] = update_split_int8,                                       \
				   [MASTER_BESIDE] = update_beside_int8,                                     \
				   [MASTER_ITSELF] = update_itself_int8 }                                    \
	}
/* clang-format on */
