/* Optimizers and reductions, over kernels that only stream the same bytes, on all processors. */
#include "tests/bench/kernels.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/simd.h"
#include "tests/bench/passes.h"

volatile uint32_t kernels_no_mask = 0;

const struct stream_kernels *kernels_streams(void)
{
#ifdef __x86_64__
	switch (simd_level()) {
	case SIMD_AVX512:
		return &stream_avx512;
	case SIMD_AVX2:
		return &stream_avx2;
	default:
		break;
	}
#endif
	return &stream_scalar;
}

static int run(struct bench *bench)
{
	int r = 0;

	printf("%u threads, %s\n", pass_threads(), simd_level_name(simd_level()));
	if (bench_wants(bench, "adam_ratio"))
		r = bench_updates(bench);
	if (r == 0 && bench_wants_any(bench, "adam_vs_deepspeed", "adam_vs_deepspeed_per_byte"))
		r = bench_update_peer(bench);
	if (r == 0 && bench_wants(bench, "reduce_ratio"))
		r = bench_reduce(bench);
	return r;
}

int main(int argc, char **argv)
{
	return bench_main(argc, argv, run);
}
