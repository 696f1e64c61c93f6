#include "kernels.h"

#include "common/simd.h"

const struct matmul_kernels *matmul_kernels = &matmul_kernels_scalar;
const struct layer_kernels *layer_kernels = &layer_kernels_scalar;
const struct update_kernels *update_kernels = &update_kernels_scalar;

static const struct {
	const struct matmul_kernels *matmul;
	const struct layer_kernels *layer;
	const struct update_kernels *update;
} levels[SIMD_LEVELS] = {
	[SIMD_SCALAR] = { &matmul_kernels_scalar, &layer_kernels_scalar, &update_kernels_scalar },
#ifdef GPT_X86
	[SIMD_AVX2] = { &matmul_kernels_avx2, &layer_kernels_avx2, &update_kernels_avx2 },
	[SIMD_AVX512] = { &matmul_kernels_avx512, &layer_kernels_avx512, &update_kernels_avx512 },
#endif
};

void kernels_choose(void)
{
	matmul_kernels = levels[simd_level()].matmul;
	layer_kernels = levels[simd_level()].layer;
	update_kernels = levels[simd_level()].update;
}
