/* What a job's gradients report to the step that takes them, and ask of it. Set when the job is made. */
#ifndef TIERD_DAEMON_GRADIENT_LISTENER_H
#define TIERD_DAEMON_GRADIENT_LISTENER_H

#include <stdbool.h>
#include <stdint.h>

struct job;

struct gradient_listener {
	/* Contributions or sums have come home: the open step may be complete. */
	void (*changed)(struct job *job);
	/* A micro-batch has been added to the unit's sum. */
	void (*summed)(struct job *job, uint32_t unit);
	/* Gradients are not being measured any more; what came of that has been said. */
	void (*measured)(struct job *job);
	/* Spilled sums that are written as values are may be in host memory. */
	void (*sums_came)(struct job *job);
	/* Updates that began before their step come to nothing, and are not over yet. */
	bool (*is_giving_up)(const struct job *job);
	/* One of them has taken the pack's sums. */
	bool (*has_taken_sums)(const struct job *job, uint32_t pack);
	/* The square sums of the unit's blocks, as norm_measure() gives them, if its sum may not be its
	 * gradients any more; else NULL. */
	const double *(*find_norm)(const struct job *job, uint32_t unit);
};

#endif
