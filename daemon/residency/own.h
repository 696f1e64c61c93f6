/* What residency keeps of a job; for its own files. */
#ifndef TIERD_DAEMON_RESIDENCY_OWN_H
#define TIERD_DAEMON_RESIDENCY_OWN_H

#include "daemon/residency/residency.h"
#include "daemon/residency/state.h"

/* Moves a section between its slot and the store. */
struct pack_transfer {
	struct store_transfer transfer;
	struct residence *residence;
	bool is_loading;
};

/* How a pack is present in host memory. */
struct residence {
	enum residence_state state;
	bool is_dirty; /* frozen values were written; the NVMe copy is older */
	bool is_blank; /* all of it is frozen, and there is no NVMe copy yet */
	uint32_t slot;
	unsigned pins;		     /* of readers in the daemon */
	unsigned writes;	     /* transfers from the slot */
	enum tier_priority priority; /* of the load */
	uint64_t version;
	uint64_t used; /* the job's clock at its last use */
	struct queue waiters;
	struct queue link; /* of slot_queue */
	struct pack_transfer sections[UNIT_SECTIONS];
	unsigned transfers_left;
	int status;
	struct job *job;
};

/* Pages of an arena that come side by side, lent to a worker. */
struct arena_piece {
	struct work work;
	struct memory arena;
	uint64_t begin, end;
	struct engine *engine; /* with which all are pinned after the last ones; NULL: they are not */
	int pinning;	       /* what engine_buffer_add() said */
	struct job *job;
};

struct job_residency {
	struct residence *residences; /* by pack */
	struct memory directory_memory, arena;
	uint64_t arena_here;	  /* it has its pages up to there; they come in this order */
	struct arena_piece piece; /* that comes, while they do */
	struct memory cache;	  /* the arena goes on there, at slots_cache_offset() */
	struct directory_header *directory;
	struct slots slots;
	struct queue slot_queue; /* residences that wait for a slot */
	const struct residency_listener *listener;
	const struct cache_tenant *cache_tenant; /* daemon/residency/cache.h */
	uint64_t clock;
	char holders[RESIDENCY_HOLDERS_TEXT]; /* who keeps a gather from ever fitting, for its message */
	unsigned cache_moves;		      /* segments, and shares of warm state, that come or go */
	struct queue leaving;		      /* segments whose pages are used by others */
	const struct segment_listener *segment_listener;
	unsigned stuck_waits;	 /* how often memory of others was waited for */
	uint32_t *next_use;	 /* by pack */
	bool has_told_kept;	 /* by a GPU's driver: of its cache */
	bool has_next_uses;	 /* nothing has moved since they were found */
	uint32_t returned_packs; /* of parameters in host memory: those that are asked back from there */
	uint64_t loading_bytes;
};

/* ---- residency.c, eviction.c ---- */

/* Takes a slot for the pack if one is free, or one can be had from a pack with a later use than it. */
bool residency_take_slot(struct job *job, uint32_t pack, uint32_t distance);
/* The pack cannot leave host memory now. */
bool residency_is_held(struct job *job, uint32_t pack);
struct directory_entry *residency_entry(const struct job *job, uint32_t unit);
/* The slot, which is the pack's or fits it, has pages. Others may be used: theirs come as they are touched,
 * which is slower, and are small. */
bool residency_has_pages(const struct job *job, uint32_t pack, uint32_t slot);
/* Shows the state of all its units to clients. */
void residency_show(struct job *job, uint32_t pack, enum directory_state state);

/* ---- load.c ---- */

/* Wakes those whose version the pack has; after an error, all. */
void residency_wake(struct residence *residence, int status);
/* Loads an absent pack, or queues it for a slot. */
void residency_request_load(struct job *job, uint32_t pack, enum tier_priority priority);
/* The transfer at which the last load failed; NULL: it failed at none. */
const struct store_transfer *residency_fault(const struct job *job, uint32_t pack);

static inline struct residence *residence_of(const struct job *job, uint32_t pack)
{
	return &job->residency->residences[pack];
}

static inline uint32_t residence_pack(const struct residence *residence)
{
	return (uint32_t)(residence - residence->job->residency->residences);
}

/* ---- What state.c has in its table ---- */

/* Guards. Closes its units to clients, or those that are trained: false, and none is, if somebody has a
 * lease. */
bool close_to_all(struct job *job, uint32_t pack);
bool close_to_updates(struct job *job, uint32_t pack);

/* Actions. */
void enter_queue(struct job *job, uint32_t pack);
void leave_queue(struct job *job, uint32_t pack);
void start_load(struct job *job, uint32_t pack);
void leave_queue_and_load(struct job *job, uint32_t pack);
void publish(struct job *job, uint32_t pack);
void give_slot(struct job *job, uint32_t pack);
void evict(struct job *job, uint32_t pack);
void show_updating(struct job *job, uint32_t pack);
void forget(struct job *job, uint32_t pack);

/* Fills next_use, if it is out of date. */
void prefetch_find_next_uses(struct job *job);

#endif
