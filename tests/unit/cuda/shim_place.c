#include "tests/unit/cuda/shim_place.h"

#include <string.h>

#include "tests/unit/cuda/kernel_place.h"
#include "tests/unit/cuda/shim_image.h"
#include "tests/unit/kernel_support.h"

const char *place_open(void)
{
	return NULL;
}

const void *place_image(void)
{
	return &shim_image;
}

void *place_allocate(size_t bytes)
{
	return allocate(bytes);
}

void place_free(void *memory)
{
	free(memory);
}

void place_write(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

void place_read(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

void place_run(const char *kernel, const void *arguments, uint32_t blocks, uint32_t threads)
{
	if (!shim_run_update(kernel, arguments, blocks, threads) &&
	    !shim_run_sum(kernel, arguments, blocks, threads))
		abort();
}
