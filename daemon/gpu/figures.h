/* Figures of the GPUs that jobs use: who holds how much, what was copied, and what the sensors say. */
#ifndef TIERD_DAEMON_GPU_FIGURES_H
#define TIERD_DAEMON_GPU_FIGURES_H

#include "daemon/model/model.h"
#include "offload/cuda/gpu_engine.h"
#include "offload/cuda/gpu_sensors.h"

struct gpu_figures {
	const struct gpu *gpu;
	unsigned number; /* in the driver's order, as the daemon sees it */
	bool is_lost;
	uint64_t held_bytes; /* by tiers of all jobs */
	/* Since the first of the jobs that now use it. */
	struct gpu_traffic traffic[GPU_DIRECTIONS];
	struct gpu_sensors sensors; /* of the last two seconds or so */
};

/* Returns how many GPUs are in use. */
unsigned gpu_figures_of_node(const struct node *node, struct gpu_figures ret_figures[GPUS_MAX]);

/* A job's part of one. */
struct gpu_job_figures {
	const struct gpu *gpu;
	unsigned number;
	uint64_t parameter_bytes, gradient_bytes;
	uint64_t update_bytes; /* for updates and sums that go through it */
	uint64_t state_bytes;  /* for state that stays there */
};
static inline uint64_t gpu_job_bytes(struct gpu_job_figures figures)
{
	return figures.parameter_bytes + figures.gradient_bytes + figures.update_bytes + figures.state_bytes;
}
unsigned gpu_figures_of_job(const struct job *job, struct gpu_job_figures ret_figures[GPUS_MAX]);

/* What the job's GPUs have used, as their counters say, from one look at them to a later one, and the steps
 * that the job has applied between these two. Each counts a whole GPU, with all who use it. */
struct gpu_energy {
	uint64_t millijoules, steps;
};
struct gpu_energy gpu_energy_of_job(const struct job *job);

/* What its GPUs get from one another. */
struct gpu_exchange_figures {
	uint64_t bytes;
	const char
		*problem; /* borrowed until the loop goes on; why they get nothing, though they should; "" */
};
struct gpu_exchange_figures gpu_exchange_of_job(const struct job *job);

#endif
