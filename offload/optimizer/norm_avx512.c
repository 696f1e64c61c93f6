#include "offload/optimizer/norm_kernels.h"

#include <immintrin.h>

static inline __m512d add_squares(__m512d sums, const float *values)
{
	__m512d x = _mm512_cvtps_pd(_mm256_loadu_ps(values));

	return _mm512_fmadd_pd(x, x, sums);
}

void norm_avx512(double lanes[NORM_LANES], const float *values, size_t count)
{
	__m512d low = _mm512_loadu_pd(lanes), high = _mm512_loadu_pd(lanes + 8);

	for (; count >= NORM_LANES; values += NORM_LANES, count -= NORM_LANES) {
		low = add_squares(low, values);
		high = add_squares(high, values + 8);
	}
	_mm512_storeu_pd(lanes, low);
	_mm512_storeu_pd(lanes + 8, high);
	norm_add_row(lanes, values, count);
}
