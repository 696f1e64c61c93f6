/* How far a rank's gradients are in the memory of its GPU: the table is in gradients_state.c. */
#ifndef TIERD_DAEMON_GPU_GRADIENTS_STATE_H
#define TIERD_DAEMON_GPU_GRADIENTS_STATE_H

#include "common/transition.h"

struct gpu_rank;

/* From MAKING to UNPINNING the member is busy. */
enum gpu_gradients_state {
	GRADIENTS_ABSENT,
	GRADIENTS_MAKING,    /* memory of the GPU */
	GRADIENTS_PINNING,   /* the buffers in host memory */
	GRADIENTS_OPEN,	     /* pushes may come */
	GRADIENTS_UNPINNING, /* the member has left, and nothing is on its way */
	GRADIENTS_CLOSED,    /* its process may still write to the memory */
	GRADIENTS_ENDING,
};
#define GRADIENTS_STATES (GRADIENTS_ENDING + 1)

enum gpu_gradients_change {
	GRADIENTS_WANT,
	GRADIENTS_MAKE, /* it is made */
	GRADIENTS_REFUSE,
	GRADIENTS_PIN, /* they are pinned, or cannot be */
	GRADIENTS_LEAVE,
	GRADIENTS_UNPIN,
	GRADIENTS_END, /* the process is gone */
	GRADIENTS_GO,
};
#define GRADIENTS_CHANGES (GRADIENTS_GO + 1)

struct gpu_gradients_transition {
	struct transition transition;
	void (*action)(struct gpu_rank *rank); /* when they have that state; or NULL */
	const char *action_name;
};

/* Its rows are these. */
extern const struct transition_table gpu_gradients_table;

/* The table has to have the change. */
void gpu_gradients_step(struct gpu_rank *rank, enum gpu_gradients_change change);

#endif
