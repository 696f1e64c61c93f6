/* A vector of fp32 in the instructions that this source is compiled for: a kernel is written once in terms of
 * it, and compiled at each level. Every operation rounds once, as its scalar does.
 *
 * Each level defines VECTOR_LEVEL (its name), VECTOR_LANES, `vector`, and
 *   all(x)                     x in every lane
 *   load(from), store(to, x)   without alignment
 *   multiply, divide, square_root
 *   fused(a, b, c)             a * b + c; fused_negative: -(a * b) + c
 *   sign(x)                    1 or -1; of a zero or a NaN, itself
 *   join(high, low)            the value of a split master (common/bfloat16.h)
 *   split(x, ret_high, ret_low)
 *   store_fp16(to, x)          rounded (common/float16.h)
 * and `words`, the bits of each lane, for
 *   bits_of(x), from_bits(x), all_words(x)
 *   lanes()                    0, 1, …
 *   add, multiply_low, greatest, of numbers without sign
 *   both, either, differ       and, or, exclusive or
 *   shift_left(x, places), shift_right(x, places)
 *   add_where_less(x, y, a, b) x + y where a is less than b, both below 2^31; else x
 *   greatest_where(x, y, z)    the greatest of x and y where z is not 0; else x
 *   greatest_lane(x)
 *   load_bytes(from)           each the highest of its lane, whose others are 0
 *   load_halves(from)          widened
 *   store_halves(to, x)        of what is below 2^16
 *   carry_half(x)              with 0x8000 added, which rounds the upper half; a NaN as it is
 * Pairs are an even element and the odd one behind it:
 *   load_pairs(from), store_pairs(to, x)      of halves: a word is a pair, the even one is its lower half
 *   load_apart(from, ret_even, ret_odd)       of fp32
 *   blend_halves(lower, upper)                the lower halves of one, the upper ones of the other
 *   borrow_halves(x, y)                       each half of x, less 1 where that of y is below 0
 * Two vectors are packed to one of halves, in an order that the level chooses; of scalars one (PACKED):
 *   pack_uppers(x, y)          the upper half of each
 *   pack_signs(x, y)           halves whose highest bits are theirs
 *   all_halves(x), subtract_halves, least_halves, shift_right_halves
 *   store_packed(to, x)        a byte of each, in the order of the elements; above 255: that
 * `wides` are numbers of 64 bits, WIDE_LANES of them:
 *   all_wides(x), load_wides(from), store_wides(to, x), differ_wides, shift_right_wides(x, places)
 *   multiply_lower_halves(x, y) */
#ifndef TIERD_OFFLOAD_VECTOR_H
#define TIERD_OFFLOAD_VECTOR_H

#include "common/simd.h"
#if defined(VECTOR_AVX512)
#include "offload/optimizer/vector_avx512.h"
#elif defined(VECTOR_AVX2)
#include "offload/optimizer/vector_avx2.h"
#else
#include "offload/optimizer/vector_scalar.h"
#endif

#define PACKED (VECTOR_LANES > 1 ? 2 : 1)

static inline void prefetch(const void *place)
{
#if VECTOR_LANES > 1
	__builtin_prefetch((const char *)place + SIMD_AHEAD, 0, 3);
#endif
}

/* Of an array that is streamed through. */
static inline vector load_ahead(const float *from)
{
	prefetch(from);
	return load(from);
}

#define VECTOR_PASTE(name, level) name##_##level
#define VECTOR_EXPAND(name, level) VECTOR_PASTE(name, level)
#define VECTOR_NAME(name) VECTOR_EXPAND(name, VECTOR_LEVEL)

#endif
