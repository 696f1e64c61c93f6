/* The benchmarks of bench_kernels: optimizers and reductions, over kernels that only stream the same bytes.
 */
#ifndef TIERD_TESTS_BENCH_KERNELS_H
#define TIERD_TESTS_BENCH_KERNELS_H

#include "tests/bench/bench.h"
#include "tests/bench/stream.h"

/* Those of the level that this machine has. */
const struct stream_kernels *kernels_streams(void);

/* A mask of zeros, which the compiler does not know. */
extern volatile uint32_t kernels_no_mask;

/* Each records its result, or returns a negative errno. */
int bench_updates(struct bench *bench);
int bench_update_peer(struct bench *bench);
int bench_reduce(struct bench *bench);

#endif
