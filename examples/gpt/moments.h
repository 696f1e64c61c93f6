/* Moments that are kept in bf16 or in 8 bits, as docs/numerics.md rounds them: the reference's share. */
#ifndef GPT_MOMENTS_H
#define GPT_MOMENTS_H

#include <stddef.h>
#include <stdint.h>

/* Of one tensor at one update. */
struct moment_keys {
	uint32_t first, second;
};

struct moment_keys moment_keys(uint64_t seed, const char *tensor, uint64_t update);

/* Elements first … first + count - 1 of the tensor, in one of its slots, 0 or 1: each becomes one of the two
 * bf16 beside it, as fp32. */
void moments_round(struct moment_keys keys, unsigned slot, uint64_t first, size_t count, float *values);

/* Whole blocks of 256, or up to the tensor's end: each becomes what one of the codes of its block stands for.
 */
void moments_code(struct moment_keys keys, unsigned slot, uint64_t first, size_t count, float *values);

#endif
