#include "collectives/reduce_kernels.h"

#include <assert.h>

/* Partial sums of this many elements, at every depth of the tree, stay in the first-level cache. */
#define BLOCK 1024

struct block {
	reduce_row *rows;
	reduce_row *rows_of_sums;
	size_t count;
};

/* Minus zero changes nothing that it is added to, not even a zero: it stands for an absent rank. bf16 and
 * fp16 write it alike. */
static const float absent_fp32[BLOCK] = { [0 ... BLOCK - 1] = -0.0f };
static const uint16_t absent_half[BLOCK] = { [0 ... BLOCK - 1] = 0x8000 };

/* Eight ranks from a multiple of eight on are a subtree of every larger tree. */
static void sum_tree(const struct block *block, float *sum, const void *const *contributions,
		     unsigned rank_count)
{
	float right[BLOCK];
	unsigned split = REDUCE_ROW_RANKS;

	if (rank_count <= REDUCE_ROW_RANKS) {
		block->rows(sum, false, contributions, rank_count, 0, block->count);
		return;
	}
	while (split * 2 < rank_count)
		split *= 2;
	sum_tree(block, sum, contributions, split);
	sum_tree(block, right, contributions + split, rank_count - split);
	block->rows_of_sums(sum, true, (const void *const[]){ right }, 1, 0, block->count);
}

static void sum_block(const struct block *block, float *sum, bool is_added, const void *const *contributions,
		      unsigned rank_count)
{
	float total[BLOCK];

	if (rank_count <= REDUCE_ROW_RANKS) {
		block->rows(sum, is_added, contributions, rank_count, 0, block->count);
	} else if (is_added) {
		sum_tree(block, total, contributions, rank_count);
		block->rows_of_sums(sum, true, (const void *const[]){ total }, 1, 0, block->count);
	} else {
		sum_tree(block, sum, contributions, rank_count);
	}
}

static void sum_all(const struct reduce_rows *rows, enum reduce_format format, float *sum, bool is_added,
		    const void *const *contributions, unsigned rank_count, size_t count)
{
	const void *absent = format == REDUCE_FP32 ? (const void *)absent_fp32 : absent_half;
	size_t element_size = reduce_element_bytes(format);
	const void *here[REDUCE_MAX_RANKS];

	assert(rank_count > 0 && rank_count <= REDUCE_MAX_RANKS);
	for (size_t first = 0; first < count; first += BLOCK) {
		struct block block = { .rows = rows->of[format],
				       .rows_of_sums = rows->of[REDUCE_FP32],
				       .count = count - first < BLOCK ? count - first : BLOCK };

		for (unsigned rank = 0; rank < rank_count; rank++)
			here[rank] = contributions[rank]
					     ? (const char *)contributions[rank] + first * element_size
					     : absent;
		sum_block(&block, sum + first, is_added, here, rank_count);
	}
}

#define DEFINE_KERNEL(level, format, FORMAT)                                                                 \
	static void level##_##format(float *sum, bool is_added, const void *const *contributions,            \
				     unsigned rank_count, size_t count)                                      \
	{                                                                                                    \
		sum_all(&reduce_##level, FORMAT, sum, is_added, contributions, rank_count, count);           \
	}
#define DEFINE_KERNELS(level)                                                                                \
	DEFINE_KERNEL(level, fp32, REDUCE_FP32)                                                              \
	DEFINE_KERNEL(level, bf16, REDUCE_BF16)                                                              \
	DEFINE_KERNEL(level, fp16, REDUCE_FP16)
#define KERNELS(level)                                                                                       \
	{                                                                                                    \
		[REDUCE_FP32] = level##_fp32, [REDUCE_BF16] = level##_bf16, [REDUCE_FP16] = level##_fp16     \
	}

DEFINE_KERNELS(scalar)
#ifdef __x86_64__
DEFINE_KERNELS(avx2)
DEFINE_KERNELS(avx512)
#endif

reduce_kernel *reduce_sum_kernel(enum simd_level level, enum reduce_format format)
{
	static reduce_kernel *const kernels[SIMD_LEVELS][REDUCE_FORMATS] = {
		[SIMD_SCALAR] = KERNELS(scalar),
#ifdef __x86_64__
		[SIMD_AVX2] = KERNELS(avx2),
		[SIMD_AVX512] = KERNELS(avx512),
#endif
	};

	return kernels[level][format];
}
