#include "offload/norm_kernels.h"

double norm_scalar(const float *values, size_t count)
{
	double lanes[NORM_LANES] = { 0 };

	for (; count >= NORM_LANES; values += NORM_LANES, count -= NORM_LANES)
		norm_add_row(lanes, values, NORM_LANES);
	norm_add_row(lanes, values, count);
	return norm_combine(lanes);
}

norm_kernel *norm_block_kernel(enum simd_level level)
{
#ifdef __x86_64__
	if (level == SIMD_AVX512)
		return norm_avx512;
	if (level == SIMD_AVX2)
		return norm_avx2;
#endif
	return norm_scalar;
}
