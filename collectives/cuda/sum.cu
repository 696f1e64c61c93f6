/* Sums of contributions on a GPU, in the order of collectives/reduce_tree.h. */
#include "common/cuda_code.h"

#include "collectives/cuda/arguments.h"
#include "common/float16.h"

static_assert(SUM_GROUP == GROUP, "the grid has a thread for each group");

typedef float vector;

static inline vector load_fp32(const float *from)
{
	return *from;
}

static inline vector load_bf16(const uint16_t *from)
{
	return bfloat16_to_float(*from);
}

static inline vector load_fp16(const uint16_t *from)
{
	return float16_to_float(*from);
}

static inline vector add(vector a, vector b)
{
	return a + b;
}

#include "collectives/reduce_tree.h"

/* Minus zero changes nothing that it is added to: it stands for an absent rank. */
static inline float absent_of(const float *)
{
	return -0.0f;
}

static inline uint16_t absent_of(const uint16_t *)
{
	return 0x8000;
}

/* A piece of an array begins at any of its elements, and a group of them is one access only where it is
 * aligned. */
template <typename element> static inline bool is_aligned(const element *array)
{
	return (uintptr_t)array % (GROUP * sizeof(element)) == 0;
}

template <typename element> static inline void load_any(element *to, const element *from, unsigned count)
{
	if (is_aligned(from)) {
		group_load(to, from, count);
		return;
	}
	UNROLL
	for (unsigned i = 0; i < GROUP; i++)
		if (i < count)
			to[i] = __ldcs(from + i);
}

static inline void store_any(float *to, const float *from, unsigned count)
{
	if (is_aligned(to)) {
		group_store(to, from, count);
		return;
	}
	UNROLL
	for (unsigned i = 0; i < GROUP; i++)
		if (i < count)
			__stcs(to + i, from[i]);
}

/* Of ranks from a multiple of eight on, of a group of elements from first on. */
template <enum reduce_format format, typename kept>
static inline void sum_row(const struct sum_arguments *with, unsigned first_rank, size_t first,
			   vector *ret_sum)
{
	unsigned left = with->rank_count - first_rank,
		 count = left < REDUCE_ROW_RANKS ? left : REDUCE_ROW_RANKS;
	kept values[REDUCE_ROW_RANKS][GROUP];
	const char *from[REDUCE_ROW_RANKS];

	UNROLL
	for (unsigned rank = 0; rank < REDUCE_ROW_RANKS; rank++) {
		const kept *contribution =
			rank < count ? (const kept *)with->contributions[first_rank + rank] : NULL;

		UNROLL
		for (unsigned i = 0; i < GROUP; i++)
			values[rank][i] = absent_of(values[rank]);
		if (contribution)
			load_any(values[rank], contribution + first, group_count(first, with->count));
		from[rank] = (const char *)values[rank];
	}
	UNROLL
	for (unsigned i = 0; i < GROUP; i++)
		ret_sum[i] = tree(from, count, format, i);
}

static inline void add_group(vector *to, const vector *from)
{
	UNROLL
	for (unsigned i = 0; i < GROUP; i++)
		to[i] = add(from[i], to[i]);
}

/* Subtrees that are whole wait until their neighbour is: one for each 1 in the number of rows, in binary. */
template <enum reduce_format format, typename kept>
static inline void sum_ranks(const struct sum_arguments *with, size_t first, vector *ret_sum)
{
	vector waiting[SUM_MAX_RANKS / REDUCE_ROW_RANKS][GROUP];
	unsigned depth = 0;

	for (unsigned row = 0; row * REDUCE_ROW_RANKS < with->rank_count; row++) {
		if (row > 0)
			memcpy(waiting[depth++], ret_sum, sizeof(waiting[0]));
		sum_row<format, kept>(with, row * REDUCE_ROW_RANKS, first, ret_sum);
		for (unsigned digits = row; digits & 1; digits >>= 1)
			add_group(ret_sum, waiting[--depth]);
	}
	while (depth > 0)
		add_group(ret_sum, waiting[--depth]);
}

template <enum reduce_format format, typename kept>
static inline void sum_group(const struct sum_arguments *with, size_t first)
{
	unsigned count = group_count(first, with->count);
	vector sum[GROUP], old[GROUP] = {};

	sum_ranks<format, kept>(with, first, sum);
	if (with->is_added) {
		load_any(old, with->sum + first, count);
		add_group(sum, old);
	}
	store_any(with->sum + first, sum, count);
}

template <enum reduce_format format, typename kept>
static inline void sum_groups(const struct sum_arguments *with)
{
	FOREACH_LANE (lane) {
		size_t first = (warp_number() * WARP_LANES + lane) * GROUP;

		if (first < with->count)
			sum_group<format, kept>(with, first);
	}
}

extern "C" __global__ void sum_fp32(const __grid_constant__ struct sum_arguments with)
{
	sum_groups<REDUCE_FP32, float>(&with);
}

extern "C" __global__ void sum_bf16(const __grid_constant__ struct sum_arguments with)
{
	sum_groups<REDUCE_BF16, uint16_t>(&with);
}

extern "C" __global__ void sum_fp16(const __grid_constant__ struct sum_arguments with)
{
	sum_groups<REDUCE_FP16, uint16_t>(&with);
}
