/* The kernels of an optimizer at one level: to be included once by its source, after that has defined
 * OPTIMIZER, the name that its formula begins with (offload/optimizer/formulas.h). Defines struct optimizer's
 * kernels as OPTIMIZER_KERNELS. */

#include "offload/optimizer/formulas.h"
#include "offload/optimizer/master_rows.h"
#include "offload/optimizer/optimizer.h"

#define FORMULA VECTOR_EXPAND(OPTIMIZER, update)

extern const struct optimizer VECTOR_EXPAND(OPTIMIZER, scalar);

ALWAYS_INLINE struct optimizer_arrays arrays_behind(const struct optimizer_arrays *arrays, size_t first,
						    enum master_kind kind, enum moment_format format)
{
	struct optimizer_arrays behind = {
		.parameter = (char *)arrays->parameter + first * master_parameter_bytes(kind),
		.master = arrays->master ? (char *)arrays->master + first * master_bytes(kind) : NULL,
		.gradient = arrays->gradient + first,
		.noise = arrays->noise,
	};

	behind.noise.first += first;
	for (unsigned i = 0; i < OPTIMIZER_MAX_SLOTS && arrays->slots[i]; i++)
		behind.slots[i] = (char *)arrays->slots[i] + moment_bytes(format, first);
	return behind;
}

/* The masters of two vectors of elements, of the even ones and of the odd ones: so they lie in pairs of
 * halves. */
ALWAYS_INLINE void join_pairs(const uint16_t *highs, const uint16_t *lows, vector *ret_even, vector *ret_odd)
{
	words low = load_pairs(lows), high = borrow_halves(load_pairs(highs), low);

	*ret_even = from_bits(lower_halves(low, high));
	*ret_odd = from_bits(upper_halves(low, high));
}

ALWAYS_INLINE void split_pairs(vector even, vector odd, uint16_t *ret_highs, uint16_t *ret_lows)
{
	store_pairs(ret_highs, upper_halves(carry_half(even), carry_half(odd)));
	store_pairs(ret_lows, lower_halves(bits_of(even), bits_of(odd)));
}

/* Where all is kept in halves two vectors are taken apart as they lie there, instead of widening each array
 * and packing it again, which would cost as much as the arithmetic. Returns how many elements it has done. */
ALWAYS_INLINE size_t update_pairs(const struct optimizer_constants *with, size_t count,
				  const struct optimizer_arrays *at, struct moments *moments)
{
	struct noise_source source = noise_source(&at->noise, 0, add(lanes(), lanes()));
	size_t i = 0;

	for (; i + 2 * VECTOR_LANES <= count; i += 2 * VECTOR_LANES) {
		uint16_t *highs = (uint16_t *)at->parameter + i, *lows = (uint16_t *)at->master + i;
		const float *gradient = at->gradient + i;
		vector p, q, a, b;

		prefetch(highs);
		prefetch(lows);
		prefetch(gradient);
		prefetch(gradient + VECTOR_LANES);
		join_pairs(highs, lows, &p, &q);
		load_apart(gradient, &a, &b);
		moments->side = SIDE_EVEN;
		moments->noise = noise_mix(source.numbers, source.key);
		p = FORMULA(with, p, a, moments, i);
		moments->side = SIDE_ODD;
		moments->noise = noise_mix(add(source.numbers, all_words(1)), source.key);
		q = FORMULA(with, q, b, moments, i);
		split_pairs(p, q, highs, lows);
		source.numbers = add(source.numbers, all_words(2 * VECTOR_LANES));
	}
	return i;
}

/* The others, from i on. */
ALWAYS_INLINE size_t update_vectors(const struct optimizer_constants *with, size_t i, size_t count,
				    const struct optimizer_arrays *at, enum master_kind kind,
				    struct moments *moments)
{
	struct noise_source source = noise_source(&at->noise, i, lanes());

	moments->side = SIDE_WHOLE;
	for (; i + VECTOR_LANES <= count; i += VECTOR_LANES) {
		vector p = load_master(at, kind, i), a = load_ahead(at->gradient + i);

		if (moments->format != MOMENTS_FP32)
			moments->noise = noise_mix(source.numbers, source.key);
		store_master(at, kind, i, FORMULA(with, p, a, moments, i));
		source.numbers = add(source.numbers, all_words(VECTOR_LANES));
	}
	return i;
}

/* A last block that is not whole pairs of vectors is left to the scalars, whole: it has one scale. */
ALWAYS_INLINE size_t update_blocks(const struct optimizer_constants *with, size_t count,
				   const struct optimizer_arrays *at, enum master_kind kind)
{
	_Alignas(64) float values[OPTIMIZER_MAX_SLOTS][MOMENT_BLOCK];
	struct moments moments = { .format = MOMENTS_INT8, .values = values };
	size_t first = 0;

	while (first < count) {
		size_t length = count - first < MOMENT_BLOCK ? count - first : MOMENT_BLOCK;

		if (length % (PACKED * VECTOR_LANES) != 0)
			break;
		moments_begin_block(&moments, at->slots, first / MOMENT_BLOCK);
		for (size_t i = 0; i < length; i += VECTOR_LANES) {
			vector p = load_master(at, kind, first + i), a = load(at->gradient + first + i);

			store_master(at, kind, first + i, FORMULA(with, p, a, &moments, i));
		}
		moments_end_block(&moments, &at->noise, first, length, at->gradient + first);
		first += length;
	}
	return first;
}

/* Constants and pointers are copied, so that they stay in registers: no store can change a local. */
ALWAYS_INLINE void update_run(const struct optimizer_constants *constants, size_t count,
			      const struct optimizer_arrays *arrays, enum master_kind kind,
			      enum moment_format format)
{
	const struct optimizer_constants with = *constants;
	const struct optimizer_arrays at = *arrays;
	struct moments moments = { .format = format, .slots = { at.slots[0], at.slots[1] } };
	size_t done = 0;

	if (format == MOMENTS_INT8)
		done = update_blocks(&with, count, &at, kind);
	else {
		if (format == MOMENTS_BF16 && kind == MASTER_SPLIT)
			done = update_pairs(&with, count, &at, &moments);
		done = update_vectors(&with, done, count, &at, kind, &moments);
	}
	if (done < count) {
		const struct optimizer_arrays rest = arrays_behind(&at, done, kind, format);

		VECTOR_EXPAND(OPTIMIZER, scalar).kernels[format][kind](constants, count - done, &rest);
	}
}

/* In runs of elements whose noise has one key. */
ALWAYS_INLINE void update_all(const struct optimizer_constants *constants, size_t count,
			      const struct optimizer_arrays *arrays, enum master_kind kind,
			      enum moment_format format)
{
	for (size_t first = 0, run; first < count; first += run) {
		const struct optimizer_arrays at = arrays_behind(arrays, first, kind, format);

		run = noise_run(&at.noise, count - first);
		update_run(constants, run, &at, kind, format);
	}
}

#define UPDATE(name, kind, format)                                                                           \
	static void name(const struct optimizer_constants *constants, size_t count,                          \
			 const struct optimizer_arrays *arrays)                                              \
	{                                                                                                    \
		update_all(constants, count, arrays, kind, format);                                          \
	}

UPDATE(update_split, MASTER_SPLIT, MOMENTS_FP32)
UPDATE(update_beside, MASTER_BESIDE, MOMENTS_FP32)
UPDATE(update_itself, MASTER_ITSELF, MOMENTS_FP32)
UPDATE(update_split_bf16, MASTER_SPLIT, MOMENTS_BF16)
UPDATE(update_beside_bf16, MASTER_BESIDE, MOMENTS_BF16)
UPDATE(update_itself_bf16, MASTER_ITSELF, MOMENTS_BF16)
UPDATE(update_split_int8, MASTER_SPLIT, MOMENTS_INT8)
UPDATE(update_beside_int8, MASTER_BESIDE, MOMENTS_INT8)
UPDATE(update_itself_int8, MASTER_ITSELF, MOMENTS_INT8)

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
