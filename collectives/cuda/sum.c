#include "collectives/cuda/sum.h"

#include <assert.h>

const char *const sum_names[REDUCE_FORMATS] = {
	[REDUCE_FP32] = "sum_fp32", [REDUCE_BF16] = "sum_bf16", [REDUCE_FP16] = "sum_fp16"
};

const char *sum_kernel(enum reduce_format format)
{
	return sum_names[format];
}

uint32_t sum_blocks(uint64_t count)
{
	uint64_t blocks = (count + SUM_THREADS * SUM_GROUP - 1) / (SUM_THREADS * SUM_GROUP);

	/* The driver takes no more. */
	assert(blocks <= INT32_MAX);
	return (uint32_t)blocks;
}
