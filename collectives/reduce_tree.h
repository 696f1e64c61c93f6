/* The order in which few contributions are summed, in terms of a `vector`: to be included once by each source
 * that defines that, load_fp32(), load_bf16(), load_fp16() and add(). */

#include "collectives/reduce_kernels.h"

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE void prefetch(const void *place)
{
#ifndef __CUDACC__
	__builtin_prefetch((const char *)place + SIMD_AHEAD, 0, 3);
#endif
}

/* Each element of a contribution is read here and nowhere else, once. */
ALWAYS_INLINE vector tree1(const char *const *from, enum reduce_format format, size_t i)
{
	if (format == REDUCE_BF16) {
		prefetch((const uint16_t *)from[0] + i);
		return load_bf16((const uint16_t *)from[0] + i);
	}
	if (format == REDUCE_FP16) {
		prefetch((const uint16_t *)from[0] + i);
		return load_fp16((const uint16_t *)from[0] + i);
	}
	prefetch((const float *)from[0] + i);
	return load_fp32((const float *)from[0] + i);
}

ALWAYS_INLINE vector tree2(const char *const *from, enum reduce_format format, size_t i)
{
	return add(tree1(from, format, i), tree1(from + 1, format, i));
}

ALWAYS_INLINE vector tree4(const char *const *from, enum reduce_format format, size_t i)
{
	return add(tree2(from, format, i), tree2(from + 2, format, i));
}

ALWAYS_INLINE vector tree3(const char *const *from, enum reduce_format format, size_t i)
{
	return add(tree2(from, format, i), tree1(from + 2, format, i));
}

ALWAYS_INLINE vector tree(const char *const *from, unsigned count, enum reduce_format format, size_t i)
{
	switch (count) {
	case 1:
		return tree1(from, format, i);
	case 2:
		return tree2(from, format, i);
	case 3:
		return tree3(from, format, i);
	case 4:
		return tree4(from, format, i);
	case 5:
		return add(tree4(from, format, i), tree1(from + 4, format, i));
	case 6:
		return add(tree4(from, format, i), tree2(from + 4, format, i));
	case 7:
		return add(tree4(from, format, i), tree3(from + 4, format, i));
	default:
		return add(tree4(from, format, i), tree4(from + 4, format, i));
	}
}
