/* What tests share that walk a table of states. */
#ifndef TIERD_TESTS_UNIT_TRANSITIONS_H
#define TIERD_TESTS_UNIT_TRANSITIONS_H

#include <stdio.h>

#include "common/transition.h"

/* No state: the table refuses the event. */
#define REFUSED (-1)

static inline int transition_after(const struct transition_table *table, int state, int event)
{
	unsigned next;

	return transition_find(table, (unsigned)state, (unsigned)event, &next) ? (int)next : REFUSED;
}

/* States, a bit each, that those lead to, and they. */
static inline unsigned transition_reach(const struct transition_table *table, unsigned states)
{
	for (unsigned before = 0; states != before;) {
		before = states;
		for (unsigned i = 0; i < table->state_count * table->event_count; i++) {
			unsigned state = i / table->event_count, next;

			if (states >> state & 1 &&
			    transition_find(table, state, i % table->event_count, &next))
				states |= 1u << next;
		}
	}
	return states;
}

/* As docs/architecture.md has it. */
static inline int transition_print(const struct transition_table *table)
{
	printf("| state | event | next state |\n|---|---|---|\n");
	for (unsigned state = 0; state < table->state_count; state++)
		for (unsigned event = 0; event < table->event_count; event++) {
			unsigned next;

			if (transition_find(table, state, event, &next))
				printf("| %s | %s | %s |\n", table->states[state], table->events[event],
				       table->states[next]);
		}
	return 0;
}

#endif
