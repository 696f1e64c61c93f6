#include "offload/moments.h"

#include <string.h>

#include "offload/initializer.h"

/* The generator of initial values, under another key than those. */
struct moment_noise moment_noise(uint64_t seed, uint64_t tensor, uint64_t update, uint64_t first)
{
	const uint32_t counter[4] = { (uint32_t)update, (uint32_t)(update >> 32), (uint32_t)tensor,
				      (uint32_t)(tensor >> 32) };
	const uint32_t key[2] = { (uint32_t)seed, ~(uint32_t)(seed >> 32) };
	uint32_t words[4];

	initializer_philox(counter, key, words);
	return (struct moment_noise){ .keys = { words[0], words[1] }, .first = first };
}

void moments_keep(enum moment_format format, const float *values, size_t count, void *ret_kept)
{
	if (format == MOMENTS_FP32)
		memcpy(ret_kept, values, count * sizeof(float));
	else
		format_narrow(MASTER_SPLIT, values, count, ret_kept);
}

void moments_restore(enum moment_format format, const void *kept, size_t count, float *ret_values)
{
	if (format == MOMENTS_FP32)
		memcpy(ret_values, kept, count * sizeof(float));
	else
		format_widen(MASTER_SPLIT, kept, count, ret_values);
}
