/* Kernels that only move bytes: they read and write what the real ones do, in vectors of the same width with
 * the same stores, and compute next to nothing. They show what memory allows. */
#ifndef TIERD_TESTS_BENCH_STREAM_H
#define TIERD_TESTS_BENCH_STREAM_H

#include <stddef.h>
#include <stdint.h>

#include "offload/optimizer/format.h"
#include "offload/optimizer/optimizer.h"

#define STREAM_RANKS 4

/* As an optimizer_kernel. */
typedef void stream_update(uint32_t mask, size_t count, const struct optimizer_arrays *arrays);

/* count is a multiple of 16. All leave the values as they are, where mask is 0: which the compiler cannot
 * know. */
struct stream_kernels {
	/* By the number of slots that are kept. */
	stream_update *updates[MASTER_KINDS][MOMENT_FORMATS][OPTIMIZER_MAX_SLOTS + 1];
	/* As a reduce_kernel that adds STREAM_RANKS contributions in bf16. */
	void (*reduce)(uint32_t mask, size_t count, float *sum, const void *const *contributions);
};

extern const struct stream_kernels stream_scalar, stream_avx2, stream_avx512;

#endif
