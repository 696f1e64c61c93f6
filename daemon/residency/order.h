/* The order in which a rank gathers units in one phase: learned from the last pass, followed in this one. */
#ifndef TIERD_DAEMON_ORDER_H
#define TIERD_DAEMON_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "common/queue.h"

#define ORDER_NONE UINT32_MAX

struct order {
	struct queue link; /* of the member */
	char *phase;
	uint32_t *learned, *seen; /* units; both have capacity entries */
	uint32_t learned_count, seen_count, capacity;
	bool has_steps;	   /* this rank has closed one in this phase: its passes end with steps */
	uint32_t position; /* in learned: what comes next; it wraps, as passes repeat */
};

/* capacity: gathers of a pass that are remembered. */
int order_new(const char *phase, uint32_t capacity, struct order **ret_order);
uint64_t order_bytes(uint32_t capacity);
struct order *order_free(struct order *order);

/* A gather happened. One that was not expected next moves the position to where it is expected, if that is
 * near; else the position stays: a deviation costs what was prefetched for it, not what was learned. */
void order_note(struct order *order, uint32_t unit);

/* The pass has ended: what was seen in it is what the next one will be like. */
void order_finish_pass(struct order *order);

/* The unit that is expected ahead gathers from now (0: next), or ORDER_NONE: nothing is learned, or ahead is
 * a whole pass. */
static inline uint32_t order_expected(const struct order *order, uint32_t ahead)
{
	if (ahead >= order->learned_count)
		return ORDER_NONE;
	return order->learned[((uint64_t)order->position + ahead) % order->learned_count];
}

#endif
