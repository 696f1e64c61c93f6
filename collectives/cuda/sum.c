#include "collectives/cuda/sum.h"

#include <assert.h>

#ifdef HAVE_NVCC
extern const unsigned long long sum_fatbin[];
#endif

const void *sum_image(void)
{
#ifdef HAVE_NVCC
	return sum_fatbin;
#else
	return NULL;
#endif
}

const char *sum_kernel(enum reduce_format format)
{
	static const char *const names[REDUCE_FORMATS] = {
		[REDUCE_FP32] = "sum_fp32", [REDUCE_BF16] = "sum_bf16", [REDUCE_FP16] = "sum_fp16"
	};

	return names[format];
}

uint32_t sum_blocks(uint64_t count)
{
	uint64_t blocks = (count + SUM_THREADS * SUM_GROUP - 1) / (SUM_THREADS * SUM_GROUP);

	/* The driver takes no more. */
	assert(blocks <= INT32_MAX);
	return (uint32_t)blocks;
}
