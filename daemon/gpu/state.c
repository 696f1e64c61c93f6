/* The states of a pack on a GPU as a table. */
#include "daemon/gpu/state.h"

#include <assert.h>

#include "common/log.h"
#include "daemon/gpu/own.h"

#define IN(state) (1u << GPU_##state)

#define ROW(from, change, guard, next, action)                                                               \
	{                                                                                                    \
		{ from, GPU_##change, GPU_##next }, guard, action, #guard, #action                           \
	}

static const struct gpu_transition rows[] = {
	ROW(IN(ABSENT), QUEUE, NULL, QUEUED, gpu_enter_queue),
	ROW(IN(ABSENT), TAKE, NULL, EXPECTED, gpu_expect),

	ROW(IN(QUEUED), LEAVE_QUEUE, NULL, ABSENT, gpu_leave_queue),
	ROW(IN(QUEUED), TAKE, NULL, EXPECTED, gpu_leave_queue_and_expect),

	ROW(IN(EXPECTED), ARRIVE, NULL, COPYING, gpu_copy),
	ROW(IN(EXPECTED), FAIL, NULL, ABSENT, gpu_give_slot),

	ROW(IN(COPYING), ORDER, NULL, ORDERED, gpu_grant),
	ROW(IN(COPYING) | IN(ORDERED), FAIL, NULL, ABSENT, gpu_give_slot),
	ROW(IN(COPYING) | IN(ORDERED), END, NULL, RESIDENT, gpu_publish),

	ROW(IN(RESIDENT), RENEW, gpu_close, EXPECTED, gpu_expect),
	ROW(IN(RESIDENT), EVICT, gpu_close, ABSENT, gpu_give_slot),
};

static const char *const states[GPU_STATES] = {
	[GPU_ABSENT] = "absent",   [GPU_QUEUED] = "queued",   [GPU_EXPECTED] = "expected",
	[GPU_COPYING] = "copying", [GPU_ORDERED] = "ordered", [GPU_RESIDENT] = "resident",
};

static const char *const changes[GPU_CHANGES] = {
	[GPU_QUEUE] = "there is no slot for it",
	[GPU_LEAVE_QUEUE] = "nobody waits for it any more",
	[GPU_TAKE] = "it has got a slot",
	[GPU_ARRIVE] = "its values are in host memory",
	[GPU_ORDER] = "its copy has a place in the GPU's order",
	[GPU_END] = "its bytes are in its slot",
	[GPU_FAIL] = "its values do not come",
	[GPU_RENEW] = "newer values are wanted",
	[GPU_EVICT] = "another pack needs its slot",
};

const struct transition_table gpu_table = TRANSITION_TABLE(states, changes, rows);

bool gpu_step(struct gpu_pack *pack, enum gpu_change change)
{
	const struct gpu_transition *row;
	unsigned next;

	row = (const struct gpu_transition *)transition_find(&gpu_table, pack->state, change, &next);
	assert(row);
	if (row->guard && !row->guard(pack))
		return false;
	if (log_takes(LOG_LEVEL_DEBUG))
		log_debug("job %s: unit \"%s\" on %s: %s: from %s to %s", pack->tier->job->name,
			  pack_name(pack->tier->job, gpu_pack_number(pack)),
			  gpu_engine_name(pack->tier->gpu->engine), changes[change], states[pack->state],
			  states[next]);
	pack->state = next;
	if (row->action)
		row->action(pack);
	gpu_move_stalls(pack);
	return true;
}
