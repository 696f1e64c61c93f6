/* The benchmarks of bench_store, one file each: what it costs that steps survive the daemon. All against a
 * tierd of their own. */
#ifndef TIERD_TESTS_BENCH_STORE_H
#define TIERD_TESTS_BENCH_STORE_H

#include "client/tierd.h"
#include "tests/bench/bench.h"
#include "tests/bench/node.h"

/* One job whose state lies on NVMe, and a trainer of one rank. Its units have an extent in each stream. */
struct store_scene {
	struct bench_node tierd;
	struct tierd_node *node;
	struct tierd_job *job;
	unsigned units;
};

/* Its memory holds a small part of its parameters. What went wrong is on stderr. */
int store_scene_open(struct store_scene *scene, bool is_quick);
void store_scene_close(struct store_scene *scene);
/* The trainer joins, the first to come or a later one; keeps trying until the daemon listens. */
int store_scene_join(struct store_scene *scene);
/* Bytes of the job's state. */
uint64_t store_scene_bytes(const struct store_scene *scene);

/* A step that updates everything, applied; its ticket says when it is durable. */
int store_scene_train(struct store_scene *scene, struct tierd_ticket **ret_ticket);
/* The same, until it is durable; how long after it was applied. */
int store_scene_train_durably(struct store_scene *scene, double *ret_ms);
/* A gather of a unit, and its release, in milliseconds. */
int store_scene_gather(struct store_scene *scene, uint32_t unit, double *ret_ms);

/* A job of frozen units of so many bytes: it is all parameters, which are written as they are made. Its first
 * step is durable, and its rank is still there. What went wrong is on stderr. */
#define STORE_LARGE_ELEMENTS (UINT64_C(16) << 20)
#define STORE_LARGE_BYTES (STORE_LARGE_ELEMENTS * sizeof(float))
int store_make_large(struct tierd_node *node, const struct tierd_job_options *options, unsigned units,
		     struct tierd_job **ret_job);

/* Each records its results, or returns a negative errno. */
int bench_map_bytes(struct bench *bench, struct store_scene *scene);
int bench_commit(struct bench *bench, struct store_scene *scene);
int bench_recover(struct bench *bench, struct store_scene *scene);
int bench_open(struct bench *bench);
int bench_snapshot(struct bench *bench);

#endif
