/* Slots: the places of an arena, in a few fixed sizes, planned when the job is ready. */
#ifndef TIERD_DAEMON_SLOTS_H
#define TIERD_DAEMON_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/catalog.h"

#define SLOT_NONE UINT32_MAX

struct slot_class {
	uint64_t bytes;	       /* of each slot */
	uint32_t packs;	       /* that are of this class */
	uint32_t first, count; /* its slots */
	bool is_full;	       /* scratch of the prefetcher */
};

struct slots {
	struct slot_class *classes; /* by size, ascending */
	uint32_t class_count;
	uint32_t *class_of_pack;
	uint32_t count;
	uint64_t bytes;	   /* of the whole arena */
	uint64_t *offsets; /* by slot */
	uint32_t *owners;  /* by slot: the pack, or SLOT_NONE */
};

/* Sizes the classes for the packs of a catalog: with_all, a slot for every pack; else as many as budget
 * allows, shared out in proportion, and at least two of each class (or as many as it has packs). slots->bytes
 * may then exceed the budget: it is the least that works. -ENOMEM. */
int slots_plan(const struct catalog *catalog, bool with_all, uint64_t budget, struct slots *ret_slots);
void slots_free(struct slots *slots);

/* A free slot of the pack's class, or SLOT_NONE; it belongs to the pack then. */
uint32_t slots_take(struct slots *slots, uint32_t pack);
void slots_give(struct slots *slots, uint32_t slot);

#endif
