/* A victim: a user whose steps are measured beside another one. Its state is in host memory alone. */
#ifndef TIERD_TESTS_BENCH_VICTIM_H
#define TIERD_TESTS_BENCH_VICTIM_H

#include <stdint.h>

struct tierd_node;
struct tierd_job;

struct bench_victim {
	struct tierd_node *node; /* to be disconnected, also after an error */
	struct tierd_job *job;
	unsigned units;
	uint64_t elements; /* of each unit, in bf16 */
};

/* Connects, and makes its job; units and elements are given. */
int bench_victim_open(struct bench_victim *victim, const char *path);
/* Takes a step, and waits until it is applied. */
int bench_victim_step(const struct bench_victim *victim);

#endif
