/* Kernels that only move bytes: they read and write what the real ones do, in vectors of the same width with
 * the same stores, and compute next to nothing. They show what memory allows. */
#ifndef TIERD_TESTS_BENCH_STREAM_H
#define TIERD_TESTS_BENCH_STREAM_H

#include <stddef.h>
#include <stdint.h>

#define STREAM_RANKS 4

/* count is a multiple of 16. All leave the values as they are, where mask is 0: which the compiler cannot
 * know. */
struct stream_kernels {
	/* As AdamW with a split master, the same with its moments in bf16, and with an fp32 parameter. */
	void (*split)(uint32_t mask, size_t count, uint16_t *parameter, int16_t *remainder, float *m,
		      float *v, const float *gradient);
	void (*bf16_moments)(uint32_t mask, size_t count, uint16_t *parameter, int16_t *remainder,
			     uint16_t *m, uint16_t *v, const float *gradient);
	void (*fp32)(uint32_t mask, size_t count, float *parameter, float *m, float *v,
		     const float *gradient);
	/* As a reduce_kernel that adds STREAM_RANKS contributions in bf16. */
	void (*reduce)(uint32_t mask, size_t count, float *sum, const void *const *contributions);
};

extern const struct stream_kernels stream_scalar, stream_avx2, stream_avx512;

#endif
