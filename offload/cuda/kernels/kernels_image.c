/* Apart from the rest, so that a test may bring another one. */
#include "offload/cuda/kernels/kernels.h"

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
