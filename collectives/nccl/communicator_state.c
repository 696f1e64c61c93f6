#include "collectives/nccl/communicator_state.h"

#include "collectives/nccl/communicator.h"

#define IN(state) (1u << COMMUNICATOR_##state)

static const struct transition rows[] = {
	{ IN(CREATING), COMMUNICATOR_CREATED, COMMUNICATOR_READY },
	{ IN(READY), COMMUNICATOR_CLOSE, COMMUNICATOR_CLOSING },
	{ IN(CLOSING), COMMUNICATOR_FINALIZED, COMMUNICATOR_CLOSED },
	{ IN(CREATING) | IN(READY) | IN(CLOSING), COMMUNICATOR_GIVE_UP, COMMUNICATOR_ABORTING },
	{ IN(ABORTING), COMMUNICATOR_DRAINED, COMMUNICATOR_ABORTED },
};

static const char *const states[COMMUNICATOR_STATES] = {
	[COMMUNICATOR_CREATING] = "creating", [COMMUNICATOR_READY] = "ready",
	[COMMUNICATOR_CLOSING] = "closing",   [COMMUNICATOR_CLOSED] = "closed",
	[COMMUNICATOR_ABORTING] = "aborting", [COMMUNICATOR_ABORTED] = "aborted",
};

static const char *const events[COMMUNICATOR_EVENTS] = {
	[COMMUNICATOR_CREATED] = "all members have found one another",
	[COMMUNICATOR_CLOSE] = "its owner closes it",
	[COMMUNICATOR_FINALIZED] = "all members have taken leave",
	[COMMUNICATOR_GIVE_UP] = "something fails, or its owner aborts it",
	[COMMUNICATOR_DRAINED] = "the GPUs are past all operations",
};

const struct transition_table communicator_table = TRANSITION_TABLE(states, events, rows);
