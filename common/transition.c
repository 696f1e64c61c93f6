#include "common/transition.h"

#include <assert.h>

const struct transition *transition_find(const struct transition_table *table, unsigned state, unsigned event,
					 unsigned *ret_next)
{
	for (size_t i = 0; i < table->row_count; i++) {
		const void *row = (const char *)table->rows + i * table->row_bytes;
		const struct transition *transition = row;

		if (transition->event != event || !(transition->from >> state & 1))
			continue;
		*ret_next = transition->to == TRANSITION_STAYS ? state : transition->to;
		return transition;
	}
	return NULL;
}

unsigned transition_take(const struct transition_table *table, unsigned state, unsigned event)
{
	unsigned next = state;
	bool is_known = transition_find(table, state, event, &next);

	assert(is_known);
	(void)is_known;
	return next;
}
