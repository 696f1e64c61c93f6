/* How much of its time a step saves when a fraction of the state stays in host memory. */
#ifndef TIERD_TESTS_BENCH_KEPT_H
#define TIERD_TESTS_BENCH_KEPT_H

#include <stdbool.h>

struct bench;
struct tierd_node;

/* The ratio, or a result beside it. */
bool kept_is_wanted(const struct bench *bench);
int kept_measure(struct bench *bench, struct tierd_node *node);

#endif
