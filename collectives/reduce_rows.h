/* The rows of one instruction set, written in terms of its vector: to be included once by each source that
 * defines what collectives/reduce_tree.h wants, LANES (the floats of a vector) and store(). Defines
 * ROWS, the contents of struct reduce_rows. */

#include "collectives/reduce_tree.h"

/* Returns the first element that is left: what does not fill a vector. */
ALWAYS_INLINE size_t row(float *sum, bool is_added, const void *const *contributions, unsigned count,
			 size_t i, size_t end, enum reduce_format format)
{
	const char *from[REDUCE_ROW_RANKS];

	for (unsigned rank = 0; rank < count; rank++)
		from[rank] = contributions[rank];
	for (; i + LANES <= end; i += LANES) {
		vector total = tree(from, count, format, i);

		prefetch(sum + i);
		store(sum + i, is_added ? add(load_fp32(sum + i), total) : total);
	}
	return i;
}

/* A loop of its own for each number of ranks, so that the pointers stay in registers. */
ALWAYS_INLINE size_t row_of_ranks(float *sum, bool is_added, const void *const *contributions, unsigned count,
				  size_t first, size_t end, enum reduce_format format)
{
	switch (count) {
	case 1:
		return row(sum, is_added, contributions, 1, first, end, format);
	case 2:
		return row(sum, is_added, contributions, 2, first, end, format);
	case 3:
		return row(sum, is_added, contributions, 3, first, end, format);
	case 4:
		return row(sum, is_added, contributions, 4, first, end, format);
	case 5:
		return row(sum, is_added, contributions, 5, first, end, format);
	case 6:
		return row(sum, is_added, contributions, 6, first, end, format);
	case 7:
		return row(sum, is_added, contributions, 7, first, end, format);
	default:
		return row(sum, is_added, contributions, 8, first, end, format);
	}
}

#define DEFINE_ROW(name, format)                                                                             \
	static void name(float *sum, bool is_added, const void *const *contributions, unsigned rank_count,   \
			 size_t first, size_t end)                                                           \
	{                                                                                                    \
		size_t i =                                                                                   \
			is_added ? row_of_ranks(sum, true, contributions, rank_count, first, end, format)    \
				 : row_of_ranks(sum, false, contributions, rank_count, first, end, format);  \
		if (i < end)                                                                                 \
			reduce_scalar.of[format](sum, is_added, contributions, rank_count, i, end);          \
	}
DEFINE_ROW(row_fp32, REDUCE_FP32)
DEFINE_ROW(row_bf16, REDUCE_BF16)
DEFINE_ROW(row_fp16, REDUCE_FP16)

#define ROWS                                                                                                 \
	{                                                                                                    \
		.of = { [REDUCE_FP32] = row_fp32, [REDUCE_BF16] = row_bf16, [REDUCE_FP16] = row_fp16 }       \
	}
