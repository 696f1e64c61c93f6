/* How a pack is present on a GPU, what happens to it, and what it is then: the table is in state.c. */
#ifndef TIERD_DAEMON_GPU_STATE_H
#define TIERD_DAEMON_GPU_STATE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/transition.h"

struct gpu_pack;

enum gpu_state {
	GPU_ABSENT,
	GPU_QUEUED,   /* absent, and somebody waits for it, and it for a slot */
	GPU_EXPECTED, /* it has a slot, and waits for its values in host memory */
	GPU_COPYING,  /* its copy waits for its place in the GPU's order */
	GPU_ORDERED,  /* its copy has it: what waits for the event sees the values */
	GPU_RESIDENT,
};
#define GPU_STATES (GPU_RESIDENT + 1)

enum gpu_change {
	GPU_QUEUE,	 /* somebody waits for it, and there is no slot */
	GPU_LEAVE_QUEUE, /* nobody waits for it any more */
	GPU_TAKE,	 /* it has got a slot */
	GPU_ARRIVE,	 /* its values are in host memory */
	GPU_ORDER,	 /* the event behind its copy is recorded */
	GPU_END,	 /* its bytes are in its slot */
	GPU_FAIL,	 /* they do not come */
	GPU_RENEW,	 /* somebody wants newer values than those in its slot */
	GPU_EVICT,
};
#define GPU_CHANGES (GPU_EVICT + 1)

struct gpu_transition {
	struct transition transition;
	bool (*guard)(struct gpu_pack *pack);  /* NULL: always */
	void (*action)(struct gpu_pack *pack); /* when it has that state; or NULL */
	const char *guard_name, *action_name;
};

/* Its rows are these. */
extern const struct transition_table gpu_table;

/* False: its guard is against it, and nothing has changed. The table has to have the change. */
bool gpu_step(struct gpu_pack *pack, enum gpu_change change);

#endif
