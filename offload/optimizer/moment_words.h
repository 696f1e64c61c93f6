/* Moments in fewer bits than they are computed in: docs/numerics.md, "Moments". Written once, over the words
 * of whatever level a source is compiled for. */
#ifndef TIERD_OFFLOAD_MOMENT_WORDS_H
#define TIERD_OFFLOAD_MOMENT_WORDS_H

#include "common/bfloat16.h"
#include "offload/optimizer/optimizer.h"
#include "offload/optimizer/vector.h"

/* Elements on their way to noise: their numbers, of 32 bits, with one key added, and another key, which has
 * the rest of the numbers in it. */
struct noise_source {
	words numbers, key;
};

/* How many of the next elements have the same key. */
static inline size_t noise_run(const struct moment_noise *noise, size_t count)
{
	uint64_t left = (UINT64_C(1) << 32) - (uint32_t)noise->first;

	return count < left ? count : (size_t)left;
}

/* Of elements of a run, from first on, each as far behind that as its lane says. */
static inline struct noise_source noise_source(const struct moment_noise *noise, uint64_t first, words behind)
{
	uint64_t number = noise->first + first;
	uint32_t key = noise->keys[1] ^ (uint32_t)(number >> 32) * UINT32_C(0x9e3779b1);

	return (struct noise_source){ add(all_words((uint32_t)number + noise->keys[0]), behind),
				      all_words(key ^ key >> 15) };
}

/* A finalizer of hash tables, which spreads each bit over all, with a key in between; but for its last step.
 * The key comes shifted and added to itself as the number would be with it, which saves an operation. */
static inline words noise_mix(words numbers, words key)
{
	words x = multiply_low(differ(numbers, shift_right(numbers, 16)), all_words(0x7feb352d));

	return multiply_low(differ(differ(x, shift_right(x, 15)), key), all_words(0x846ca68b));
}

/* That leaves the upper half as it is. */
static inline words noise_finish(words mixed)
{
	return differ(mixed, shift_right(mixed, 16));
}

static inline words noise_next(struct noise_source *source)
{
	words noise = noise_finish(noise_mix(source->numbers, source->key));

	source->numbers = add(source->numbers, all_words(VECTOR_LANES));
	return noise;
}

static inline words magnitude_of(words bits)
{
	return both(bits, all_words(0x7fffffff));
}

static inline words sign_of(words bits)
{
	return both(bits, all_words(UINT32_C(0x80000000)));
}

static inline words lower_half(words x)
{
	return both(x, all_words(0xffff));
}

static inline words upper_half(words x)
{
	return both(x, all_words(UINT32_C(0xffff0000)));
}

/* Of two words, those of an even element and the odd one behind it, as a pair: and of two pairs, both words.
 */
static inline words upper_halves(words even, words odd)
{
	return blend_halves(shift_right(even, 16), odd);
}

static inline words lower_halves(words even, words odd)
{
	return blend_halves(even, shift_left(odd, 16));
}

/* 16 bits of it for each slot. */
static inline words noise_of_slot(words mixed, unsigned slot)
{
	return slot == 0 ? lower_half(noise_finish(mixed)) : shift_right(mixed, 16);
}

/* Adds the noise below the bits that are kept, which are the upper half; the lower one is of no use any more.
 * Above the largest finite bf16 there is nothing to go to, so that what is finite stays so, and a quiet NaN
 * one; arithmetic gives no other. */
static inline words round_bf16(vector x, words noise)
{
	words bits = bits_of(x);

	return add_where_less(bits, noise, magnitude_of(bits), all_words(0x7f7f0000));
}

/* Codes: the fp32 of what a value is of its block's scale, plus an offset, cut to three bits behind the
 * point, and counted from the offset's on. Near zero the offset makes their distances equal; from there on
 * they grow with the value. A first moment's has a sign and 16 powers of two, a second one's twice as many.
 */
#define CODE_CUT 20
#define CODE_SIGN 0x80

static inline uint32_t code_offset(unsigned slot)
{
	return (uint32_t)(127 - (slot == 0 ? 15 : 31)) << 23;
}

/* The scale of a block: the power of two of its largest magnitude with the offset, so that a block whose
 * values all have codes gets the same ones again, whatever the noise. Infinities and NaNs get the largest
 * code. 0: all is below 2^-126. */
static inline uint32_t code_scale(uint32_t greatest_magnitude, unsigned slot)
{
	const uint32_t most = 0x7effefff;

	if (greatest_magnitude > most)
		greatest_magnitude = most;
	return (greatest_magnitude + (slot == 0 ? 1U << (23 - 14) : 0)) & 0x7f800000;
}

/* Its reciprocal. */
static inline uint32_t code_factor(uint32_t scale)
{
	return scale > 0 ? (UINT32_C(254) << 23) - scale : 0;
}

/* Of a value with this code, what is added to the product with the scale. */
static inline float code_base(unsigned slot, float scale)
{
	return -float_from_bits(code_offset(slot)) * scale;
}

/* codes: as load_bytes() gives them. They have no bit of the offset. */
static inline vector decode(words codes, unsigned slot, vector scale, vector base)
{
	words shifted = shift_right(codes, 24 - CODE_CUT);
	words magnitude = slot == 0 ? both(shifted, all_words((CODE_SIGN - 1) << CODE_CUT)) : shifted;
	vector x = fused(from_bits(either(magnitude, all_words(code_offset(slot)))), scale, base);

	return slot == 0 ? from_bits(either(bits_of(x), sign_of(codes))) : x;
}

/* What counts of a moment for its block's scale. A second one is not below 0. */
static inline words code_magnitude(vector x, unsigned slot)
{
	return slot == 0 ? magnitude_of(bits_of(x)) : bits_of(x);
}

/* The code with the offset, from bit CODE_CUT on, and chance below it. A second moment that is above 0 stays
 * so: a step is divided by its root. But code 1 stands for scale * 2^-34, which is 0 where the scale is below
 * 2^-115. */
static inline words encode_uncut(vector x, unsigned slot, vector factor, words noise)
{
	words magnitude = code_magnitude(x, slot), offset = all_words(code_offset(slot));
	words sum = bits_of(fused(from_bits(magnitude), factor, from_bits(offset)));

	if (slot == 0)
		return add(sum, both(noise, all_words((1U << CODE_CUT) - 1)));
	sum = greatest_where(sum, all_words(code_offset(slot) + (1U << CODE_CUT)), magnitude);
	return add(sum, shift_right(noise, 32 - CODE_CUT));
}

/* Of as many vectors as are packed at once. What is above the upper halves is cut, and an offset has nothing
 * below its own. Up to store_packed(), which cuts what is above 255. */
static inline words encode(const vector *x, unsigned slot, vector factor, const words *noise)
{
	words first = encode_uncut(x[0], slot, factor, noise[0]);
	words last = encode_uncut(x[PACKED - 1], slot, factor, noise[PACKED - 1]);
	words offset = all_halves((uint16_t)(code_offset(slot) >> 16));
	words codes = shift_right_halves(subtract_halves(pack_uppers(first, last), offset), CODE_CUT - 16);
	words signs;

	if (slot > 0)
		return codes;
	signs = shift_right_halves(pack_signs(bits_of(x[0]), bits_of(x[PACKED - 1])), 8);
	return either(least_halves(codes, all_halves(CODE_SIGN - 1)), both(signs, all_halves(CODE_SIGN)));
}

#endif
