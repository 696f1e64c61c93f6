/* Warm state: optimizer state that stays in host memory from one sweep to the next, where memory is left
 * over. It is not read again, and is written only before a commit.
 *
 * Each sweep uses all state once, so the state that was used last is needed last: nothing is evicted to make
 * room for other state. The plan fixes which ranges can be warm. They are spread evenly over the sweep, so
 * that the devices always have work. Ranges lie in segments, whose memory comes and goes as a whole; each
 * segment has ranges from all over the sweep, and so have the first n segments together, for each n. */
#ifndef TIERD_DAEMON_WARM_H
#define TIERD_DAEMON_WARM_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/unit_layout.h"

struct job;
struct warm;

/* The states of some chunks, one after the other. */
struct warm_range {
	uint64_t offset;  /* in its segment */
	uint32_t segment; /* SLOT_NONE: it is never warm */
	/* Chunks, a bit each, whose state is here: as the store shows it, or will show it when an early
	 * update is published or dirty state is written. */
	uint8_t filled;
	uint8_t unwritten; /* chunks that the running sweep still has to write */
	bool is_deferred;  /* the running sweep leaves it unwritten */
	bool is_dirty;	   /* the store has older state */
	bool is_writing;
};

/* ---- For a plan ---- */

/* The bytes of all state, if all were warm; 0: none can be. */
uint64_t warm_bytes_most(const struct job *job);
/* Host memory for the list of ranges. */
uint64_t warm_metadata_bytes(const struct job *job);

/* ---- For updates ---- */

/* The warm range of the chunk that begins at that element; NULL: it is not warm. The caller has the chunk's
 * part of it until he gives it back. Chunks of a range are taken in order; the first one says for all whether
 * they may be written later (may_defer). ret_is_filled: the state is there, and need not be read. */
struct warm_range *warm_take(struct job *job, uint32_t pack, enum unit_section section, uint64_t first,
			     bool may_defer, bool *ret_is_filled);
/* Whether warm_take() would have it; nothing is taken. */
bool warm_has(const struct job *job, uint32_t pack, enum unit_section section, uint64_t first);
/* Where the chunk's state lies; whole pages, to its end. */
char *warm_state(const struct job *job, const struct warm_range *range, uint32_t pack,
		 enum unit_section section, uint64_t first, unsigned state);
/* is_filled: its state is there now. */
void warm_give(struct job *job, struct warm_range *range, enum unit_section section, uint64_t first,
	       bool is_filled);
/* Dirty: a chunk of it will not be written now. Not dirty: all of it has been written. */
void warm_mark(struct job *job, struct warm_range *range, bool is_dirty);
/* A chunk of it has been written. */
void warm_note_written(struct job *job, struct warm_range *range);
/* GPUs that update some of the job pin what is here. */
void warm_pin(struct job *job);
/* The pack's warm state is not the store's any more, and is read again. None of it is taken or dirty. */
void warm_forget_pack(struct job *job, uint32_t pack);

/* ---- For those who read the store ---- */

/* The store has older state than memory: of the pack; of any pack. */
bool warm_is_dirty(const struct job *job, uint32_t pack);
bool warm_has_dirty(const struct job *job);
/* Writes all dirty state, except of packs that a sweep is updating. Operations and copies that wait for this
 * are resumed, also when the job breaks. */
void warm_flush(struct job *job);
/* The same, while no sweep runs. done() never runs inside; below 0: the job is broken or dropped. */
void warm_flush_all(struct job *job, void (*done)(struct job *job, int status));
/* Nothing is written for now, also if others want the memory: the store is being rolled back, and what is not
 * written goes. False: it is not, after all. */
void warm_hold(struct job *job, bool is_held);
/* In the job's turn. */
void warm_flush_go_on(struct job *job);

/* ---- For caches ---- */

/* Of segments that are here, coming or going: all that is charged to the job. */
uint64_t warm_bytes(const struct job *job);
/* Of warm_bytes(): of segments that could be given up; of those that are given up and have not gone yet. */
uint64_t warm_bytes_here(const struct job *job);
uint64_t warm_bytes_leaving(const struct job *job);
/* Gives up the last segment that is here; there is one. When the kernel has its pages, all jobs are settled.
 */
void warm_close(struct job *job);
/* Takes back what is given up and has not gone yet. */
void warm_keep_all(struct job *job);

/* For the cache, whose tenant warm state is. */
extern const struct cache_tenant warm_tenant;

/* Gives all of it back; none of it is taken or in flight. The caller gives back its budget. */
void warm_free(struct job *job);

#endif
