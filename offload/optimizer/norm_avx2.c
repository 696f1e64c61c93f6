#include "offload/optimizer/norm_kernels.h"

#include <immintrin.h>

static inline __m256d add_squares(__m256d sums, const float *values)
{
	__m256d x = _mm256_cvtps_pd(_mm_loadu_ps(values));

	return _mm256_fmadd_pd(x, x, sums);
}

void norm_avx2(double lanes[NORM_LANES], const float *values, size_t count)
{
	__m256d sums[4];

	for (size_t j = 0; j < 4; j++)
		sums[j] = _mm256_loadu_pd(lanes + 4 * j);
	for (; count >= NORM_LANES; values += NORM_LANES, count -= NORM_LANES)
		for (size_t j = 0; j < 4; j++)
			sums[j] = add_squares(sums[j], values + 4 * j);
	for (size_t j = 0; j < 4; j++)
		_mm256_storeu_pd(lanes + 4 * j, sums[j]);
	norm_add_row(lanes, values, count);
}
