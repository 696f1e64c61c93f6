/* The life of a communicator, as a table. */
#ifndef TIERD_COLLECTIVES_NCCL_COMMUNICATOR_STATE_H
#define TIERD_COLLECTIVES_NCCL_COMMUNICATOR_STATE_H

#include "common/transition.h"

enum communicator_event {
	COMMUNICATOR_CREATED,
	COMMUNICATOR_CLOSE,
	COMMUNICATOR_FINALIZED,
	COMMUNICATOR_GIVE_UP,
	COMMUNICATOR_DRAINED,
	COMMUNICATOR_EVENTS
};

extern const struct transition_table communicator_table;

#endif
