/* Which vector instructions the kernels may use, found at run time. */
#ifndef TIERD_COMMON_SIMD_H
#define TIERD_COMMON_SIMD_H

enum simd_level { SIMD_SCALAR, SIMD_AVX2, SIMD_AVX512, SIMD_LEVELS };

/* The best level of this processor (AVX2 with FMA and F16C; AVX-512 F, BW, DQ and VL), or what
 * $TIERD_SIMD (scalar, avx2, avx512) lowers it to. */
enum simd_level simd_level(void);

const char *simd_level_name(enum simd_level level);

/* How far ahead, in bytes, kernels ask for each of the arrays that they stream through: the processor's own
 * prefetchers stop at the end of a page. Half a page, since what lies a whole one ahead wants the same set of
 * the first-level cache as what is in hand, of all arrays at once: measured, updates are a seventh slower so.
 * Where memory is saturated all is the same. */
#define SIMD_AHEAD 2048

#endif
