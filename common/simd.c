#include "common/simd.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

static const char *const names[] = { "scalar", "avx2", "avx512" };

#ifdef __x86_64__
/* Compilers do not all know its name. */
static bool has_f16c(void)
{
	unsigned a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

static enum simd_level level_of_processor(void)
{
#ifdef __x86_64__
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		return SIMD_AVX512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c())
		return SIMD_AVX2;
#endif
	return SIMD_SCALAR;
}

enum simd_level simd_level(void)
{
	enum simd_level best = level_of_processor();
	const char *wanted = getenv("TIERD_SIMD");

	for (int level = 0; wanted && level < (int)best; level++)
		if (strcmp(wanted, names[level]) == 0)
			return (enum simd_level)level;
	return best;
}

const char *simd_level_name(enum simd_level level)
{
	return names[level];
}
