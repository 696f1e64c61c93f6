/* Slots in the hands of a kernel, which knows their format when it is compiled. */
#ifndef TIERD_OFFLOAD_MOMENT_ROWS_H
#define TIERD_OFFLOAD_MOMENT_ROWS_H

#include "offload/optimizer/moment_words.h"
#include "offload/optimizer/optimizer.h"

/* A block of codes is computed in fp32, since its scale is known at its end only. */
struct moment_block {
	bool is_moved;
	vector scale, base; /* of the codes that are read */
	words greatest;	    /* magnitude of what replaces them */
	vector factor;	    /* which makes codes of those */
};

/* Which elements are in hand: as many as there are lanes, or these of twice as many. The two come one after
 * the other. */
enum moment_side { SIDE_WHOLE, SIDE_EVEN, SIDE_ODD };

struct moments {
	enum moment_format format;
	enum moment_side side;		    /* of bf16 */
	void *slots[OPTIMIZER_MAX_SLOTS];   /* of codes: of the block that is in hand */
	words noise;			    /* of the elements that are in hand, mixed; not of codes */
	words read[OPTIMIZER_MAX_SLOTS];    /* pairs */
	words rounded[OPTIMIZER_MAX_SLOTS]; /* of what replaces them, the even ones */
	struct moment_block blocks[OPTIMIZER_MAX_SLOTS]; /* of codes */
	float (*values)[MOMENT_BLOCK]; /* of those, by slot: beside it, so that the rest stays in registers */
};

static inline vector load_bf16(struct moments *moments, unsigned slot, size_t i)
{
	const uint16_t *halves = (const uint16_t *)moments->slots[slot] + i;

	if (moments->side != SIDE_ODD)
		prefetch(halves);
	if (moments->side == SIDE_WHOLE)
		return from_bits(shift_left(load_halves(halves), 16));
	if (moments->side == SIDE_ODD)
		return from_bits(upper_half(moments->read[slot]));
	moments->read[slot] = load_pairs(halves);
	return from_bits(shift_left(moments->read[slot], 16));
}

static inline void store_bf16(struct moments *moments, unsigned slot, size_t i, vector x)
{
	uint16_t *halves = (uint16_t *)moments->slots[slot] + i;
	words rounded = round_bf16(x, noise_of_slot(moments->noise, slot));

	if (moments->side == SIDE_WHOLE)
		store_halves(halves, shift_right(rounded, 16));
	else if (moments->side == SIDE_EVEN)
		moments->rounded[slot] = rounded;
	else
		store_pairs(halves, upper_halves(moments->rounded[slot], rounded));
}

static inline void store_in_block(struct moments *moments, unsigned slot, size_t i, vector x)
{
	struct moment_block *block = &moments->blocks[slot];

	block->is_moved = true;
	block->greatest = greatest(block->greatest, code_magnitude(x, slot));
	store(moments->values[slot] + i, x);
}

static inline vector moment_load(struct moments *moments, unsigned slot, size_t i)
{
	const struct coded_moments *coded = (const struct coded_moments *)moments->slots[slot];

	if (moments->format == MOMENTS_FP32)
		return load_ahead((const float *)moments->slots[slot] + i);
	if (moments->format == MOMENTS_INT8)
		return decode(load_bytes(coded->codes + i), slot, moments->blocks[slot].scale,
			      moments->blocks[slot].base);
	return load_bf16(moments, slot, i);
}

static inline void moment_store(struct moments *moments, unsigned slot, size_t i, vector x)
{
	if (moments->format == MOMENTS_FP32)
		store((float *)moments->slots[slot] + i, x);
	else if (moments->format == MOMENTS_BF16)
		store_bf16(moments, slot, i, x);
	else
		store_in_block(moments, slot, i, x);
}

/* ---- Codes ---- */

static inline void moments_begin_block(struct moments *moments, void *const slots[OPTIMIZER_MAX_SLOTS],
				       size_t block)
{
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS && slots[slot]; slot++) {
		struct coded_moments *coded = (struct coded_moments *)slots[slot] + block;

		for (size_t at = 0; at < sizeof(*coded); at += 64)
			prefetch((char *)coded + at);
		moments->slots[slot] = coded;
		moments->blocks[slot].is_moved = false;
		moments->blocks[slot].scale = all(coded->scale);
		moments->blocks[slot].base = all(code_base(slot, coded->scale));
		moments->blocks[slot].greatest = all_words(0);
	}
}

static inline void store_codes(const struct moments *moments, unsigned slot, size_t i, const words *noise)
{
	struct coded_moments *coded = (struct coded_moments *)moments->slots[slot];
	const float *values = moments->values[slot] + i;
	const vector x[] = { load(values), load(values + (PACKED - 1) * VECTOR_LANES) };

	store_packed(coded->codes + i, encode(x, slot, moments->blocks[slot].factor, noise));
}

/* count: of whole vectors, as many as are packed at once. first: of its elements, among those that the noise
 * numbers. Slots that were not stored stay as they are; who stores one stores the first. gradient: of the
 * block. It is asked for in advance here, so that memory is at work while codes are computed. */
static inline void moments_end_block(struct moments *moments, const struct moment_noise *noise, size_t first,
				     size_t count, const float *gradient)
{
	if (!moments->slots[0] || !moments->blocks[0].is_moved)
		return;
	for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++) {
		struct coded_moments *coded = (struct coded_moments *)moments->slots[slot];

		if (!coded || !moments->blocks[slot].is_moved)
			continue;
		uint32_t scale = code_scale(greatest_lane(moments->blocks[slot].greatest), slot);

		coded->scale = float_from_bits(scale);
		moments->blocks[slot].factor = all(float_from_bits(code_factor(scale)));
	}
	struct noise_source source = noise_source(noise, first, lanes());

	for (size_t i = 0; i < count; i += PACKED * VECTOR_LANES) {
		words bits[PACKED];

		for (unsigned n = 0; n < PACKED; n++) {
			prefetch(gradient + i + n * VECTOR_LANES);
			bits[n] = noise_next(&source);
		}
		for (unsigned slot = 0; slot < OPTIMIZER_MAX_SLOTS; slot++)
			if (moments->slots[slot] && moments->blocks[slot].is_moved)
				store_codes(moments, slot, i, bits);
	}
}

#endif
