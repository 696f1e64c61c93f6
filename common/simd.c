#include "common/simd.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[] = { "scalar", "avx2", "avx512" };

static enum simd_level level_of_processor(void)
{
#ifdef __x86_64__
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		return SIMD_AVX512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
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
