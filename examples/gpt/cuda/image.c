#include <stddef.h>

#include "examples/gpt/cuda/arguments.h"

#ifdef HAVE_NVCC
extern const unsigned long long gpt_fatbin[];
#endif

const void *gpt_kernels_image(void)
{
#ifdef HAVE_NVCC
	return gpt_fatbin;
#else
	return NULL;
#endif
}
