/* Random values of many blocks at once, in loops that compilers make vectors of. For initializer.c, and
 * initializer_rows.c, which is compiled for each level. */
#ifndef TIERD_OFFLOAD_INITIALIZER_ROWS_H
#define TIERD_OFFLOAD_INITIALIZER_ROWS_H

#include "common/simd.h"
#include "offload/optimizer/initializer.h"

#define INITIALIZER_BLOCK 4    /* elements of one Philox counter */
#define INITIALIZER_BLOCKS 64U /* at once */
#define INITIALIZER_ROW (INITIALIZER_BLOCK * INITIALIZER_BLOCKS)

/* The elements of INITIALIZER_BLOCKS blocks, from that one on, of a normal or uniform tensor. */
typedef void initializer_kernel(const struct initializer *initializer, uint64_t block,
				float ret_values[INITIALIZER_ROW]);

/* level is at most simd_level(). */
initializer_kernel *initializer_find_kernel(enum simd_level level);

initializer_kernel initializer_rows_scalar, initializer_rows_avx2, initializer_rows_avx512;

#endif
