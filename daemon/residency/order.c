#include "daemon/residency/order.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How far ahead an unexpected unit is looked for. */
#define NEAR 64

uint64_t order_bytes(uint32_t capacity)
{
	return sizeof(struct order) + 2 * sizeof(uint32_t) * (uint64_t)capacity;
}

int order_new(const char *phase, uint32_t capacity, struct order **ret_order)
{
	struct order *order = calloc(1, sizeof(*order));

	if (!order)
		return -ENOMEM;
	order->phase = strdup(phase);
	order->learned = malloc(capacity * sizeof(uint32_t));
	order->seen = malloc(capacity * sizeof(uint32_t));
	if (!order->phase || !order->learned || !order->seen) {
		order_free(order);
		return -ENOMEM;
	}
	order->capacity = capacity;
	queue_init(&order->link);
	*ret_order = order;
	return 0;
}

struct order *order_free(struct order *order)
{
	if (!order)
		return NULL;
	free(order->phase);
	free(order->learned);
	free(order->seen);
	free(order);
	return NULL;
}

void order_note(struct order *order, uint32_t unit)
{
	if (order->seen_count < order->capacity)
		order->seen[order->seen_count++] = unit;
	for (uint32_t ahead = 0; ahead < NEAR; ahead++) {
		uint32_t expected = order_expected(order, ahead);

		if (expected == ORDER_NONE)
			break;
		if (expected != unit)
			continue;
		order->position = (uint32_t)(((uint64_t)order->position + ahead + 1) % order->learned_count);
		return;
	}
}

void order_finish_pass(struct order *order)
{
	uint32_t *learned = order->learned;

	if (order->seen_count == 0)
		return;
	order->learned = order->seen;
	order->learned_count = order->seen_count;
	order->seen = learned;
	order->seen_count = 0;
	order->position = 0;
}
