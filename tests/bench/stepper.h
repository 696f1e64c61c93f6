/* A trainer for benches: one rank that pushes constant gradients of every element, and steps. */
#ifndef TIERD_TESTS_BENCH_STEPPER_H
#define TIERD_TESTS_BENCH_STEPPER_H

#include <stdint.h>

#include "client/tierd.h"

#define STEPPER_ELEMENTS (UINT64_C(1) << 20) /* of a unit: whole extents in each stream */

struct stepper {
	struct tierd_job *job;
	unsigned units;
};

/* What its job is; its optimizer's state lies on NVMe. */
struct stepper_options {
	const char *name;
	unsigned units;
	uint32_t parameters_on, moments, durability;
	uint64_t host_budget; /* 0: whatever there is */
};

/* Another job of that name is replaced. */
int stepper_open(struct tierd_node *node, const struct stepper_options *options, struct stepper *ret_stepper);

/* The least host memory that such a job works with, to a tenth of a MiB: as tierd says to one that has less.
 */
int stepper_least(struct tierd_node *node, const struct stepper_options *options, uint64_t *ret_bytes);

int stepper_push(const struct stepper *stepper);
/* Takes a step, and waits for the event; how long that took. */
int stepper_step(const struct stepper *stepper, enum tierd_event event, double *ret_seconds);

#endif
