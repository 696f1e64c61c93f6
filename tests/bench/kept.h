/* How much of its time a step saves when a fraction of the state stays in host memory. */
#ifndef TIERD_TESTS_BENCH_KEPT_H
#define TIERD_TESTS_BENCH_KEPT_H

struct bench;
struct tierd_node;

int kept_measure(struct bench *bench, struct tierd_node *node);

#endif
