#include "offload/cuda/kernels/kernels.h"

#include <assert.h>
#include <string.h>

#include "common/cleanup.h"
#include "offload/optimizer/norm.h"

#ifdef HAVE_NVCC
extern const unsigned long long kernels_fatbin[];
#endif

const void *kernels_image(void)
{
#ifdef HAVE_NVCC
	return kernels_fatbin;
#else
	return NULL;
#endif
}

const char *kernels_update(const struct optimizer *optimizer, enum moment_format format)
{
	static const struct {
		const char *optimizer, *names[MOMENT_FORMATS];
	} kernels[] = {
#define NAMES(optimizer)                                                                                     \
	{                                                                                                    \
#optimizer,                                                                                  \
		{                                                                                            \
#optimizer "_fp32", #optimizer "_bf16", #optimizer "_int8"                           \
		}                                                                                            \
	}
		NAMES(adamw), NAMES(adam), NAMES(sgd), NAMES(lion), NAMES(none),
	};
	size_t i = 0;

	while (strcmp(kernels[i].optimizer, optimizer->name) != 0) {
		i++;
		assert(i < ARRAY_LENGTH(kernels));
	}
	return kernels[i].names[format];
}

static uint32_t blocks_of(uint64_t count, uint64_t elements_of_block)
{
	uint64_t blocks = (count + elements_of_block - 1) / elements_of_block;

	/* The driver takes no more. */
	assert(blocks <= INT32_MAX);
	return (uint32_t)blocks;
}

uint32_t kernels_update_blocks(enum moment_format format, uint64_t count)
{
	return blocks_of(count, format == MOMENTS_INT8 ? UPDATE_THREADS / 32 * MOMENT_BLOCK
						       : UPDATE_THREADS * UPDATE_GROUP);
}

uint32_t kernels_norm_blocks(uint64_t count)
{
	return blocks_of(count, (uint64_t)NORM_THREADS / NORM_LANES * NORM_BLOCK_ELEMENTS);
}
