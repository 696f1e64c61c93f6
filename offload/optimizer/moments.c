#include "offload/optimizer/moments.h"

#include <assert.h>
#include <string.h>

#include "offload/optimizer/initializer.h"
#include "offload/optimizer/moment_words.h"

static_assert(sizeof(struct coded_moments) == MOMENT_BLOCK + sizeof(float), "blocks lie one after the other");

/* The generator of initial values, under another key than those. */
struct moment_noise moment_noise(uint64_t seed, uint64_t tensor, uint64_t update, uint64_t first)
{
	const uint32_t counter[4] = { (uint32_t)update, (uint32_t)(update >> 32), (uint32_t)tensor,
				      (uint32_t)(tensor >> 32) };
	const uint32_t key[2] = { (uint32_t)seed, ~(uint32_t)(seed >> 32) };
	uint32_t drawn[4];

	initializer_philox(counter, key, drawn);
	return (struct moment_noise){ .keys = { drawn[0], drawn[1] }, .first = first };
}

uint64_t moment_offset(enum moment_format format, uint64_t element)
{
	if (format == MOMENTS_INT8)
		element -= element % MOMENT_BLOCK;
	return moment_bytes(format, element);
}

/* ---- Blocks ---- */

/* The next elements that lie in one block, and where they do in it. */
static size_t in_block(uint64_t first, size_t left, size_t *ret_at)
{
	*ret_at = first % MOMENT_BLOCK;
	return left < MOMENT_BLOCK - *ret_at ? left : MOMENT_BLOCK - *ret_at;
}

static void decode_block(const struct coded_moments *block, unsigned slot, size_t at, size_t count,
			 float *ret_values)
{
	for (size_t i = 0; i < count; i++)
		ret_values[i] = decode(load_bytes(&block->codes[at + i]), slot, block->scale,
				       code_base(slot, block->scale));
}

static void encode_block(const float *values, unsigned slot, struct coded_moments *ret_block)
{
	/* Half of what chance may be. */
	const words half = slot == 0 ? 0x80000 : 0x80000000;
	uint32_t most = 0, scale;

	for (size_t i = 0; i < MOMENT_BLOCK; i++)
		most = greatest(most, code_magnitude(values[i], slot));
	scale = code_scale(most, slot);
	ret_block->scale = float_from_bits(scale);
	for (size_t i = 0; i < MOMENT_BLOCK; i++)
		store_packed(&ret_block->codes[i],
			     encode(&values[i], slot, float_from_bits(code_factor(scale)), &half));
}

static void keep_in_block(const float *values, unsigned slot, size_t at, size_t count,
			  struct coded_moments *block)
{
	float all_values[MOMENT_BLOCK];

	if (count < MOMENT_BLOCK)
		decode_block(block, slot, 0, MOMENT_BLOCK, all_values);
	for (size_t i = 0; i < count; i++)
		all_values[at + i] = slot > 0 && values[i] <= 0 ? 0 : values[i];
	encode_block(all_values, slot, block);
}

/* ---- All formats ---- */

void moments_keep(enum moment_format format, unsigned slot, const float *values, uint64_t first, size_t count,
		  void *kept)
{
	struct coded_moments *block = kept;
	size_t at, length;

	if (format == MOMENTS_FP32)
		memcpy(kept, values, count * sizeof(float));
	else if (format == MOMENTS_BF16)
		format_narrow(MASTER_SPLIT, values, count, kept);
	else
		for (size_t done = 0; done < count; done += length, block++) {
			length = in_block(first + done, count - done, &at);
			keep_in_block(values + done, slot, at, length, block);
		}
}

void moments_restore(enum moment_format format, unsigned slot, const void *kept, uint64_t first, size_t count,
		     float *ret_values)
{
	const struct coded_moments *block = kept;
	size_t at, length;

	if (format == MOMENTS_FP32)
		memcpy(ret_values, kept, count * sizeof(float));
	else if (format == MOMENTS_BF16)
		format_widen(MASTER_SPLIT, kept, count, ret_values);
	else
		for (size_t done = 0; done < count; done += length, block++) {
			length = in_block(first + done, count - done, &at);
			decode_block(block, slot, at, length, ret_values + done);
		}
}
