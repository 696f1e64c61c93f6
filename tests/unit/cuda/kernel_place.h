/* Where a test of kernels runs them: on this machine's processor (shim.h), or on a GPU (tests/gpu). */
#ifndef TIERD_TESTS_UNIT_CUDA_KERNEL_PLACE_H
#define TIERD_TESTS_UNIT_CUDA_KERNEL_PLACE_H

#include <stddef.h>
#include <stdint.h>

/* NULL, or why no kernel can run. */
const char *place_open(void);

/* Its kernels of updates, as the driver takes them. */
const void *place_image(void);

/* Whatever fails after that ends the program, and says why. Memory is aligned to 16 bytes. */
void *place_allocate(size_t bytes);
void place_free(void *memory);
void place_write(void *to, const void *from, size_t bytes);
void place_read(void *to, const void *from, size_t bytes);

/* Returns when it has run. */
void place_run(const char *kernel, const void *arguments, uint32_t blocks, uint32_t threads);

#endif
