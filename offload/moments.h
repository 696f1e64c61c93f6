/* Moments outside of kernels: the noise that these round with, and conversions. */
#ifndef TIERD_OFFLOAD_MOMENTS_H
#define TIERD_OFFLOAD_MOMENTS_H

#include "offload/optimizer.h"

/* tensor: initializer_tensor() of its name; update: as of optimizer_set(). */
struct moment_noise moment_noise(uint64_t seed, uint64_t tensor, uint64_t update, uint64_t first);

/* Between values and what is kept of them: to the nearest, half away from zero. Arrays do not overlap. */
void moments_keep(enum moment_format format, const float *values, size_t count, void *ret_kept);
void moments_restore(enum moment_format format, const void *kept, size_t count, float *ret_values);

#endif
