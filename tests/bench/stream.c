/* Built once per instruction set, with the width of its vectors in STREAM_BYTES and its name in STREAM_NAME.
 */
#include "tests/bench/stream.h"

#define LANES (STREAM_BYTES / 4)

typedef uint32_t wide __attribute__((vector_size(STREAM_BYTES), aligned(4), may_alias));
typedef uint16_t narrow __attribute__((vector_size(STREAM_BYTES / 2), aligned(2), may_alias));

/* As far ahead as the real kernels ask for their arrays. */
static inline void prefetch(const void *place)
{
	__builtin_prefetch((const char *)place + 4096, 0, 3);
}

static inline wide *wide_at(void *place)
{
	return place;
}

static inline narrow *narrow_at(void *place)
{
	return place;
}

static inline void mix(float *place, wide change)
{
	prefetch(place);
	*wide_at(place) ^= change;
}

static void stream_split(uint32_t mask, size_t count, uint16_t *parameter, int16_t *remainder, float *m,
			 float *v, const float *gradient)
{
	uint16_t narrow_mask = (uint16_t)mask;

	for (size_t i = 0; i < count; i += LANES) {
		wide change = *(const wide *)(gradient + i) & mask;
		narrow high = *narrow_at(parameter + i), low = *narrow_at(remainder + i);

		prefetch(gradient + i);
		prefetch(parameter + i);
		prefetch(remainder + i);
		mix(m + i, change);
		mix(v + i, change);
		*narrow_at(parameter + i) = high ^ (low & narrow_mask);
		*narrow_at(remainder + i) = low ^ (high & narrow_mask);
	}
}

static inline void mix_narrow(uint16_t *place, narrow change)
{
	prefetch(place);
	*narrow_at(place) ^= change;
}

static void stream_bf16_moments(uint32_t mask, size_t count, uint16_t *parameter, int16_t *remainder,
				uint16_t *m, uint16_t *v, const float *gradient)
{
	uint16_t narrow_mask = (uint16_t)mask;

	for (size_t i = 0; i < count; i += LANES) {
		narrow change = __builtin_convertvector(*(const wide *)(gradient + i) & mask, narrow);
		narrow high = *narrow_at(parameter + i), low = *narrow_at(remainder + i);

		prefetch(gradient + i);
		prefetch(parameter + i);
		prefetch(remainder + i);
		mix_narrow(m + i, change);
		mix_narrow(v + i, change);
		*narrow_at(parameter + i) = high ^ (low & narrow_mask);
		*narrow_at(remainder + i) = low ^ (high & narrow_mask);
	}
}

static void stream_fp32(uint32_t mask, size_t count, float *parameter, float *m, float *v,
			const float *gradient)
{
	for (size_t i = 0; i < count; i += LANES) {
		wide change = *(const wide *)(gradient + i) & mask;

		prefetch(gradient + i);
		mix(m + i, change);
		mix(v + i, change);
		mix(parameter + i, change);
	}
}

static void stream_reduce(uint32_t mask, size_t count, float *sum, const void *const *contributions)
{
	const uint16_t *a = contributions[0], *b = contributions[1];
	const uint16_t *c = contributions[2], *d = contributions[3];

	for (size_t i = 0; i < count; i += LANES) {
		narrow all = (*(const narrow *)(a + i) ^ *(const narrow *)(b + i)) ^
			     (*(const narrow *)(c + i) ^ *(const narrow *)(d + i));

		prefetch(a + i);
		prefetch(b + i);
		prefetch(c + i);
		prefetch(d + i);
		mix(sum + i, __builtin_convertvector(all, wide) & mask);
	}
}

const struct stream_kernels STREAM_NAME = {
	.split = stream_split,
	.bf16_moments = stream_bf16_moments,
	.fp32 = stream_fp32,
	.reduce = stream_reduce,
};
