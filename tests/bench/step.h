/* The benchmarks of bench_step: durable steps of a job of bf16 parameters, whose AdamW state lies on NVMe,
 * and a trainer of one rank that pushes all of them. */
#ifndef TIERD_TESTS_BENCH_STEP_H
#define TIERD_TESTS_BENCH_STEP_H

#include "client/tierd.h"
#include "tests/bench/bench.h"
#include "tests/bench/fio.h"
#include "tests/bench/node.h"
#include "tests/bench/stepper.h"

struct step_layout {
	const char *name;
	uint32_t parameters_on, moments;
	double limit; /* bytes read and written per parameter; 0: none is asked for */
};

enum { STEP_EXACT, STEP_EXACT_HOST, STEP_BF16, STEP_BF16_HOST, STEP_INT8, STEP_INT8_HOST, STEP_LAYOUTS };
extern const struct step_layout step_layouts[STEP_LAYOUTS];

struct step_scene {
	struct bench_node tierd;
	struct tierd_node *node;
	struct stepper stepper;
	unsigned units;
	struct fio_job fio;
};

/* Opens the job in place of the one before, which is closed. */
int step_open_job(struct step_scene *scene, const struct step_layout *layout);

/* What one step cost. */
struct step_cost {
	double bytes;	   /* from the first push on */
	double late_bytes; /* of those, from the closing of the step on */
	double late_seconds;
	double late_processor_seconds; /* of the daemon's */
};

/* Pushes and steps; what went wrong is on stderr. */
int step_take(const struct step_scene *scene, struct step_cost *ret_cost);

/* Two steps: the first finds moments that nobody has written yet, and the second the places of that. */
int step_warm_up(const struct step_scene *scene);

/* The same on a stand-in for a fast disk, which becomes $TMPDIR. */
int bench_step_fast(struct bench *bench);

/* The same compared with DeepSpeed, if it is installed. */
bool step_wants_peer(const struct bench *bench);
int bench_step_peer(struct bench *bench, const struct step_scene *scene);

#endif
