/* A state machine as a table: in which states an event may happen, and which state follows. */
#ifndef TIERD_COMMON_TRANSITION_H
#define TIERD_COMMON_TRANSITION_H

#include <stdbool.h>
#include <stddef.h>

#include "common/cleanup.h"

/* The state stays as it is. */
#define TRANSITION_STAYS (~0u)

struct transition {
	unsigned from; /* states, as 1 << state */
	unsigned event, to;
};

struct transition_table {
	const char *const *states, *const *events; /* their names */
	unsigned state_count, event_count;
	const void *rows; /* each begins with a struct transition */
	size_t row_bytes, row_count;
};

/* Of arrays: names by state and by event, and rows. */
#define TRANSITION_TABLE(state_names, event_names, all_rows)                                                 \
	{                                                                                                    \
		.states = (state_names), .events = (event_names), .state_count = ARRAY_LENGTH(state_names),  \
		.event_count = ARRAY_LENGTH(event_names), .rows = (all_rows),                                \
		.row_bytes = sizeof((all_rows)[0]), .row_count = ARRAY_LENGTH(all_rows)                      \
	}

/* The row of an event in a state, and the state that follows. NULL: the state does not have the event. */
const struct transition *transition_find(const struct transition_table *table, unsigned state, unsigned event,
					 unsigned *ret_next);
/* The state that follows; the state has the event. */
unsigned transition_take(const struct transition_table *table, unsigned state, unsigned event);

#endif
