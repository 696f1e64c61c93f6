/* Moments outside of kernels: the noise that these round with, and conversions. */
#ifndef TIERD_OFFLOAD_MOMENTS_H
#define TIERD_OFFLOAD_MOMENTS_H

#include "offload/optimizer/optimizer.h"

/* tensor: initializer_tensor() of its name; update: as of optimizer_set(). */
struct moment_noise moment_noise(uint64_t seed, uint64_t tensor, uint64_t update, uint64_t first);

/* Where an element lies among those that are kept, in bytes; in a format of blocks, where its block does. */
uint64_t moment_offset(enum moment_format format, uint64_t element);

/* Between values of a slot and what is kept of them, from where moment_offset() says that the element first
 * lies: to the nearest, half away from zero. Other elements of a block stay as they are, as far as it can
 * hold what is new beside them; in its codes a second moment below 0 is 0. Arrays do not overlap. */
void moments_keep(enum moment_format format, unsigned slot, const float *values, uint64_t first, size_t count,
		  void *kept);
void moments_restore(enum moment_format format, unsigned slot, const void *kept, uint64_t first, size_t count,
		     float *ret_values);

#endif
