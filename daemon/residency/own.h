/* What residency keeps of a job; for its own files. */
#ifndef TIERD_DAEMON_RESIDENCY_OWN_H
#define TIERD_DAEMON_RESIDENCY_OWN_H

#include "daemon/residency/residency.h"

struct residency {
	struct memory directory_memory, arena;
	struct memory cache; /* the arena goes on there, at slots_cache_offset() */
	struct directory_header *directory;
	struct slots slots;
	struct queue slot_wishes; /* residences that wait for a slot */
	const struct residency_listener *listener;
	const struct cache_tenant *cache_tenant; /* daemon/residency/cache.h */
	uint64_t clock;
	char holders[RESIDENCY_HOLDERS_TEXT]; /* who keeps a gather from ever fitting, for its message */
	unsigned cache_moves;		      /* tracts, and shares of warm state, that come or go */
	unsigned rescues;		      /* how often memory of others was waited for */
	uint32_t *next_use;		      /* by pack */
	bool has_next_uses;		      /* nothing has moved since they were found */
	uint32_t returned_packs; /* of parameters in host memory: those that are asked back from there */
	uint64_t loading_bytes;
};

/* Takes a slot for the pack if one is free, or one can be had from a pack with a later use than it. */
bool residency_take_slot(struct job *job, uint32_t pack, uint32_t distance);
/* It could not leave host memory now. */
bool residency_is_held(struct job *job, uint32_t pack);
void residency_unwish(struct residence *residence);
struct directory_entry *residency_entry(const struct job *job, uint32_t unit);
void residency_set_state(struct job *job, uint32_t pack, enum directory_state state);
/* What the last load has failed at; NULL: nothing that has a place. */
const struct store_transfer *residency_fault(const struct job *job, uint32_t pack);

/* Fills next_use, if it is out of date. */
void prefetch_find_next_uses(struct job *job);

#endif
