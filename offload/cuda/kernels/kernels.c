#include "offload/cuda/kernels/kernels.h"

#include <assert.h>
#include <string.h>

#include "offload/optimizer/norm.h"

#define NAMES(optimizer) optimizer "_fp32", optimizer "_bf16", optimizer "_int8"

const char *const kernels_names[KERNELS_COUNT] = {
	NAMES("adamw"), NAMES("adam"), NAMES("sgd"), NAMES("lion"), NAMES("none"), KERNELS_NORM,
};

static bool is_of(const char *kernel, const char *optimizer)
{
	size_t length = strlen(optimizer);

	return strncmp(kernel, optimizer, length) == 0 && kernel[length] == '_';
}

const char *kernels_update(const struct optimizer *optimizer, enum moment_format format)
{
	size_t i = 0;

	while (!is_of(kernels_names[i], optimizer->name)) {
		i += MOMENT_FORMATS;
		assert(i + MOMENT_FORMATS < KERNELS_COUNT);
	}
	return kernels_names[i + format];
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
