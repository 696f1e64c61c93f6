#include "offload/store/checksum.h"

#include <pthread.h>
#include <string.h>

#include "common/clock.h"
#include "common/size.h"
#include "offload/store/checksum_vector.h"

#define SAMPLE_BYTES (32 * KIB) /* stays in the first-level cache, or nearly */
#define TURNS 5
#define TURN_NS UINT64_C(100000) /* wide vectors are slow for the first of them, on some processors */

static checksum_kernel *const kernels[SIMD_LEVELS] = {
	[SIMD_SCALAR] = checksum_scalar,
#ifdef __x86_64__
	[SIMD_AVX2] = checksum_avx2,
	[SIMD_AVX512] = checksum_avx512,
#endif
};

static checksum_kernel *fastest;

checksum_kernel *checksum_find_kernel(enum simd_level level)
{
	return kernels[level];
}

/* Of one call, in the best of the turns: the others have been interrupted. */
static double measure(checksum_kernel *kernel, const void *sample)
{
	double best = 0;

	for (unsigned turn = 0; turn < TURNS; turn++) {
		uint64_t begin = clock_now_ns(), now = begin;
		unsigned calls = 0;

		for (; now - begin < TURN_NS; now = clock_now_ns())
			(void)*(volatile uint64_t *)&(uint64_t){ kernel(sample, SAMPLE_BYTES, calls++) };
		if (best == 0 || (double)(now - begin) / calls < best)
			best = (double)(now - begin) / calls;
	}
	return best;
}

static void choose(void)
{
	uint8_t sample[SAMPLE_BYTES];
	double least = 0;

	memset(sample, 1, sizeof(sample));
	for (int level = SIMD_SCALAR; level <= (int)simd_level(); level++) {
		double took = measure(kernels[level], sample);

		if (least == 0 || took < least) {
			least = took;
			fastest = kernels[level];
		}
	}
}

uint64_t checksum(const void *bytes, size_t length, uint64_t seed)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, choose);
	return fastest(bytes, length, seed);
}
