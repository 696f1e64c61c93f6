/* The benchmarks of bench_gather, one file each; all against a tierd of their own. */
#ifndef TIERD_TESTS_BENCH_GATHER_H
#define TIERD_TESTS_BENCH_GATHER_H

#include "client/tierd.h"
#include "tests/bench/bench.h"
#include "tests/bench/node.h"

/* Each records its results, or returns a negative errno. */
int bench_gather_cold(struct bench *bench);
int bench_gather_fast(struct bench *bench);
int bench_gather_hits(struct bench *bench);
int bench_gather_misses(struct bench *bench);
int bench_requests(struct bench *bench);
int bench_isolation(struct bench *bench);
int bench_hostile(struct bench *bench);
int bench_hostile_io(struct bench *bench);

struct gather_job {
	const char *name;
	uint64_t host_budget;
	unsigned units;
	uint64_t elements; /* of each */
	bool is_frozen;
};

/* Connects, and makes such a job of one rank ready. What went wrong is on stderr. */
int gather_open(const struct bench_node *tierd, const struct gather_job *wanted, struct tierd_node **ret_node,
		struct tierd_job **ret_job);

#endif
