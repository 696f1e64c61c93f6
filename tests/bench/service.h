/* The benchmarks of bench_service, one file each: what a tierd costs that serves for weeks, how soon a job is
 * open, or open again, and what it takes of memory. All against a tierd of their own. */
#ifndef TIERD_TESTS_BENCH_SERVICE_H
#define TIERD_TESTS_BENCH_SERVICE_H

#include "tests/bench/bench.h"

/* Each records its results, or returns a negative errno. */
int bench_attach(struct bench *bench);
int bench_idle(struct bench *bench);
int bench_metadata(struct bench *bench);

#endif
