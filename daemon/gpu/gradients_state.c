/* The states of a rank's gradients on a GPU as a table. */
#include "daemon/gpu/gradients_state.h"

#include <assert.h>

#include "common/log.h"
#include "daemon/gpu/own.h"

#define ROW(from, change, next, action)                                                                      \
	{                                                                                                    \
		{ 1u << GRADIENTS_##from, GRADIENTS_##change, GRADIENTS_##next }, action, #action            \
	}

static const struct gpu_gradients_transition rows[] = {
	ROW(ABSENT, WANT, MAKING, gpu_make_gradients),
	ROW(MAKING, MAKE, PINNING, gpu_pin_gradients),
	ROW(MAKING, REFUSE, ABSENT, gpu_refuse_gradients),
	ROW(PINNING, PIN, OPEN, gpu_show_gradients),
	ROW(OPEN, LEAVE, UNPINNING, gpu_unpin_gradients),
	ROW(UNPINNING, UNPIN, CLOSED, gpu_give_gradients_back),
	ROW(CLOSED, END, ENDING, gpu_destroy_gradients),
	ROW(ENDING, GO, ABSENT, gpu_end_gradients),
};

static const char *const states[GRADIENTS_STATES] = {
	[GRADIENTS_ABSENT] = "absent",	     [GRADIENTS_MAKING] = "making", [GRADIENTS_PINNING] = "pinning",
	[GRADIENTS_OPEN] = "open",	     [GRADIENTS_CLOSED] = "closed", [GRADIENTS_ENDING] = "ending",
	[GRADIENTS_UNPINNING] = "unpinning",
};

static const char *const changes[GRADIENTS_CHANGES] = {
	[GRADIENTS_WANT] = "the rank wants to push from there",
	[GRADIENTS_MAKE] = "their memory is made",
	[GRADIENTS_REFUSE] = "there is no memory",
	[GRADIENTS_PIN] = "host memory is registered, or cannot be",
	[GRADIENTS_LEAVE] = "the rank has left, and nothing is on its way",
	[GRADIENTS_UNPIN] = "host memory is registered no more",
	[GRADIENTS_END] = "its process and what it has queued have ended",
	[GRADIENTS_GO] = "their memory is gone",
};

const struct transition_table gpu_gradients_table = TRANSITION_TABLE(states, changes, rows);

void gpu_gradients_step(struct gpu_rank *rank, enum gpu_gradients_change change)
{
	const struct gpu_gradients_transition *row;
	unsigned next;

	row = (const struct gpu_gradients_transition *)transition_find(&gpu_gradients_table,
								       rank->gradients.state, change, &next);
	assert(row);
	if (log_takes(LOG_LEVEL_DEBUG))
		log_debug("job %s: gradients of place %u on %s: %s: from %s to %s", rank->tier->job->name,
			  rank->place, gpu_engine_name(rank->tier->gpu->engine), changes[change],
			  states[rank->gradients.state], states[next]);
	rank->gradients.state = next;
	row->action(rank);
}
