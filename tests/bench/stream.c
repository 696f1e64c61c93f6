/* Built once per instruction set, with the width of its vectors in STREAM_BYTES and its name in STREAM_NAME.
 */
#include "tests/bench/stream.h"

#define LANES (STREAM_BYTES / 4)
#define ALWAYS_INLINE static inline __attribute__((always_inline))

typedef uint32_t wide __attribute__((vector_size(STREAM_BYTES), aligned(4), may_alias));
typedef uint16_t narrow __attribute__((vector_size(STREAM_BYTES / 2), aligned(2), may_alias));
typedef uint8_t codes __attribute__((vector_size(STREAM_BYTES / 4), aligned(1), may_alias));

/* As far ahead as the real kernels ask for their arrays. */
ALWAYS_INLINE void prefetch(const void *place)
{
	__builtin_prefetch((const char *)place + SIMD_AHEAD, 0, 3);
}

/* What an array's values change by. */
struct change {
	wide wide;
	narrow narrow;
	codes codes;
};

ALWAYS_INLINE struct change change_from(const float *gradient, uint32_t mask)
{
	const narrow *halves = (const void *)gradient;
	const codes *quarters = (const void *)gradient;

	prefetch(gradient);
	return (struct change){ *(const wide *)gradient & mask, (halves[0] ^ halves[1]) & (uint16_t)mask,
				(quarters[0] ^ quarters[2]) & (uint8_t)mask };
}

ALWAYS_INLINE void mix(void *array, size_t bytes, size_t i, const struct change *change)
{
	void *place = (char *)array + i * bytes;

	if (bytes == 0)
		return;
	prefetch(place);
	if (bytes == sizeof(float))
		*(wide *)place ^= change->wide;
	else
		*(narrow *)place ^= change->narrow;
}

ALWAYS_INLINE void mix_moments(void *slot, enum moment_format format, size_t i, const struct change *change)
{
	struct coded_moments *block = (struct coded_moments *)slot + i / MOMENT_BLOCK;
	codes *place = (void *)(block->codes + i % MOMENT_BLOCK);

	if (format != MOMENTS_INT8) {
		mix(slot, moment_bytes(format, 1), i, change);
		return;
	}
	prefetch(place);
	*place ^= change->codes;
	if (i % MOMENT_BLOCK == 0)
		*(uint32_t *)(void *)block ^= change->wide[0];
}

ALWAYS_INLINE void update(uint32_t mask, size_t count, const struct optimizer_arrays *arrays,
			  enum master_kind kind, enum moment_format format, unsigned slots)
{
	const struct optimizer_arrays at = *arrays;

	for (size_t i = 0; i < count; i += LANES) {
		const struct change change = change_from(at.gradient + i, mask);

		mix(at.parameter, master_parameter_bytes(kind), i, &change);
		mix(at.master, master_bytes(kind), i, &change);
		for (unsigned slot = 0; slot < slots; slot++)
			mix_moments(at.slots[slot], format, i, &change);
	}
}

#define UPDATE(name, kind, format, slots)                                                                    \
	static void name(uint32_t mask, size_t count, const struct optimizer_arrays *arrays)                 \
	{                                                                                                    \
		update(mask, count, arrays, kind, format, slots);                                            \
	}
#define UPDATES(name, kind, format)                                                                          \
	UPDATE(name##_0, kind, format, 0)                                                                    \
	UPDATE(name##_1, kind, format, 1)                                                                    \
	UPDATE(name##_2, kind, format, 2)

UPDATES(split_fp32, MASTER_SPLIT, MOMENTS_FP32)
UPDATES(split_bf16, MASTER_SPLIT, MOMENTS_BF16)
UPDATES(split_int8, MASTER_SPLIT, MOMENTS_INT8)
UPDATES(beside_fp32, MASTER_BESIDE, MOMENTS_FP32)
UPDATES(beside_bf16, MASTER_BESIDE, MOMENTS_BF16)
UPDATES(beside_int8, MASTER_BESIDE, MOMENTS_INT8)
UPDATES(itself_fp32, MASTER_ITSELF, MOMENTS_FP32)
UPDATES(itself_bf16, MASTER_ITSELF, MOMENTS_BF16)
UPDATES(itself_int8, MASTER_ITSELF, MOMENTS_INT8)

static void stream_reduce(uint32_t mask, size_t count, float *sum, const void *const *contributions)
{
	const uint16_t *a = contributions[0], *b = contributions[1];
	const uint16_t *c = contributions[2], *d = contributions[3];

	for (size_t i = 0; i < count; i += LANES) {
		narrow all = (*(const narrow *)(a + i) ^ *(const narrow *)(b + i)) ^
			     (*(const narrow *)(c + i) ^ *(const narrow *)(d + i));
		const struct change change = { .wide = __builtin_convertvector(all, wide) & mask };

		prefetch(a + i);
		prefetch(b + i);
		prefetch(c + i);
		prefetch(d + i);
		mix(sum, sizeof(*sum), i, &change);
	}
}

#define BY_SLOTS(name)                                                                                       \
	{                                                                                                    \
		name##_0, name##_1, name##_2                                                                 \
	}
#define BY_FORMAT(name)                                                                                      \
	{                                                                                                    \
		[MOMENTS_FP32] = BY_SLOTS(name##_fp32), [MOMENTS_BF16] = BY_SLOTS(name##_bf16),              \
		[MOMENTS_INT8] = BY_SLOTS(name##_int8)                                                       \
	}

const struct stream_kernels STREAM_NAME = {
	.updates = { [MASTER_SPLIT] = BY_FORMAT(split),
		     [MASTER_BESIDE] = BY_FORMAT(beside),
		     [MASTER_ITSELF] = BY_FORMAT(itself) },
	.reduce = stream_reduce,
};
