#include "offload/optimizer/norm_kernels.h"

void norm_scalar(double lanes[NORM_LANES], const float *values, size_t count)
{
	for (; count >= NORM_LANES; values += NORM_LANES, count -= NORM_LANES)
		norm_add_row(lanes, values, NORM_LANES);
	norm_add_row(lanes, values, count);
}

double norm_combine(double lanes[NORM_LANES])
{
	return norm_add_lanes(lanes);
}

norm_kernel *norm_find_kernel(enum simd_level level)
{
#ifdef __x86_64__
	if (level == SIMD_AVX512)
		return norm_avx512;
	if (level == SIMD_AVX2)
		return norm_avx2;
#endif
	return norm_scalar;
}
