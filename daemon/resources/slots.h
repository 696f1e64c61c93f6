/* Slots: the places of an arena, in a few fixed sizes, planned when the job is ready. The first ones of each
 * size are reserved for the job; the others lie in segments, which come and go with the memory behind them.
 */
#ifndef TIERD_DAEMON_SLOTS_H
#define TIERD_DAEMON_SLOTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/size.h"
#include "daemon/model/model.h"

#define SLOT_NONE UINT32_MAX
/* As an owner: there is no memory in the slot now. */
#define SLOT_AWAY (UINT32_MAX - 1)
/* What is reserved and what is not lie in regions of their own, which huge pages do not straddle. */
#define SLOTS_ALIGNMENT (UINT64_C(2) << 20)

struct slot_class {
	uint64_t bytes;	       /* of each slot */
	uint32_t packs;	       /* that are of this class */
	uint32_t reserved;     /* the first of its slots */
	uint32_t first, count; /* its slots */
	bool is_full;	       /* scratch of the prefetcher */
};

enum segment_state {
	SEGMENT_AWAY,
	SEGMENT_PLANNED, /* charged with the plan of the job; nobody fetches it yet */
	SEGMENT_COMING,
	SEGMENT_HERE,
	SEGMENT_DRAINING,
	SEGMENT_GOING,
};
/* So often it is tried to give the pages of a segment back: a GPU's driver may keep them for ever. */
#define SEGMENT_TRIES 3

struct slot_segment {
	uint64_t offset, bytes; /* in the cache */
	uint32_t first, count;	/* in slots->in_segments */
	enum segment_state state;
	unsigned failures; /* to give its pages back */
};

struct slots {
	struct slot_class *classes; /* by size, ascending */
	uint32_t class_count;
	uint32_t *class_of_pack;
	uint32_t count;
	uint32_t here;	      /* of them, those that have memory */
	uint64_t bytes;	      /* of all slots */
	uint64_t reserved;    /* of those that are reserved; their region */
	uint64_t cache;	      /* of the others; it begins at slots_cache_offset() */
	uint64_t *offsets;    /* by slot */
	uint32_t *owners;     /* by slot: the pack, SLOT_NONE or SLOT_AWAY */
	uint32_t *segment_of; /* by slot; SLOT_NONE: it is reserved */
	struct slot_segment *segments;
	uint32_t segment_count;
	uint32_t *in_segments; /* the slots of one segment after the other */
};

/* Sizes the classes for the packs of a catalog: with_all, a slot for every pack, all of them reserved, which
 * lie in the order of packs if those take them in it; else as many as budget allows, shared out in
 * proportion, and at least two of each class (or as many as it has packs), which are reserved:
 * slots->reserved may exceed the budget, it is the least that works. Segments are made for a cache of about
 * usual_cache bytes, and are away. -ENOMEM. */
int slots_plan(const struct catalog *catalog, bool with_all, uint64_t budget, uint64_t usual_cache,
	       struct slots *ret_slots);
void slots_free(struct slots *slots);

/* A free slot of the pack's class, or SLOT_NONE. Once it is taken it belongs to the pack. */
uint32_t slots_find_free(const struct slots *slots, uint32_t pack);
uint32_t slots_take(struct slots *slots, uint32_t pack);
void slots_give(struct slots *slots, uint32_t slot);

/* Whether so many packs of each class, or all that it has, can be resident at once, now. */
bool slots_have_room_for(const struct slots *slots, uint32_t packs);

static inline bool slots_has_pack(const struct slots *slots, uint32_t slot)
{
	return slots->owners[slot] < SLOT_AWAY;
}

static inline bool segment_may_leave(enum segment_state state, unsigned failures)
{
	return state == SEGMENT_HERE && failures < SEGMENT_TRIES;
}

/* What slots of so many bytes take: whole pages, and one at least. */
static inline uint64_t slots_memory(uint64_t bytes)
{
	return size_align(bytes ? bytes : 4096, 4096);
}

static inline uint64_t slots_cache_offset(const struct slots *slots)
{
	return size_align(slots->reserved, SLOTS_ALIGNMENT);
}

/* A segment's slots can be taken from now on, or no more: those that have an owner are away when they are
 * given back. */
void slots_open_segment(struct slots *slots, uint32_t segment);
void slots_close_segment(struct slots *slots, uint32_t segment);
/* No slot of a closed segment has an owner. */
bool slots_is_empty(const struct slots *slots, uint32_t segment);

#endif
