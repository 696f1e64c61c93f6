/* Warm state: what the optimizer keeps of some ranges stays in host memory from one sweep to the next,
 * where there is memory that nobody else wants. So it is not read again, and written before a commit only.
 *
 * Sweeps pass over everything in turns, so whatever was used last is wanted last: nothing is evicted for
 * something else. Which ranges are warm is fixed, and they are spread evenly, so that the devices always
 * have something to do. They lie in segments, whose memory comes and goes at once; each segment has ranges of
 * the whole sweep, and so have the first few of them together, however many there are. */
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
	/* Chunks, a bit each, of which it has what the store shows, or will when an early update is
	 * published, or what is dirty is written. */
	uint8_t filled;
	uint8_t unwritten; /* chunks, of the sweep that is at it */
	bool is_deferred;  /* that sweep does not write them */
	bool is_dirty;	   /* the store has what it was before */
	bool is_writing;
};

/* ---- For a plan ---- */

/* Were all of it warm; 0: nothing of it can be. */
uint64_t warm_bytes_most(const struct job *job);
/* Host memory that it takes to know which ranges are warm. */
uint64_t warm_metadata_bytes(const struct job *job);

/* ---- For updates ---- */

/* The range of the chunk that begins at that element, if it is warm, or can be: the chunk's part of it is
 * the caller's until it is given back; NULL: neither. Chunks of a range are taken in their order, and the
 * first one says of all whether they may be written later. ret_is_filled: what is there is right. */
struct warm_range *warm_take(struct job *job, uint32_t pack, enum unit_section section, uint64_t first,
			     bool may_defer, bool *ret_is_filled);
/* What it would be asked for; nothing is taken. */
bool warm_has(const struct job *job, uint32_t pack, enum unit_section section, uint64_t first);
/* Where the chunk's state lies; whole pages, to its end. */
char *warm_state(const struct job *job, const struct warm_range *range, uint32_t pack,
		 enum unit_section section, uint64_t first, unsigned state);
/* is_filled: again. */
void warm_give(struct job *job, struct warm_range *range, enum unit_section section, uint64_t first,
	       bool is_filled);
/* One of the chunks that are taken will not be written, or all has been. */
void warm_mark(struct job *job, struct warm_range *range, bool is_dirty);
/* One of them has been. */
void warm_note_written(struct job *job, struct warm_range *range);
/* What the store shows of the pack is not what is warm of it. Nothing of that is taken, or dirty. */
void warm_forget_pack(struct job *job, uint32_t pack);

/* ---- For those who read the store ---- */

/* What the store shows is older than what the job has: of a pack; of any. */
bool warm_is_dirty(const struct job *job, uint32_t pack);
bool warm_has_dirty(const struct job *job);
/* All that is dirty is written, but of packs that a sweep is at. Operations and copies that wait for that are
 * resumed, also when the job breaks. */
void warm_flush(struct job *job);
/* The same, while no sweep runs. done(): with 0, or the job is broken or dropped. Never inside. */
void warm_flush_all(struct job *job, void (*done)(struct job *job, int status));
/* In the job's turn. */
void warm_flush_go_on(struct job *job);

/* ---- For caches ---- */

/* In segments that are not away: charged to the job. */
uint64_t warm_bytes(const struct job *job);
/* Of warm_bytes(): what may be given up; and what is given up already, and has not gone. */
uint64_t warm_bytes_here(const struct job *job);
uint64_t warm_bytes_leaving(const struct job *job);
/* The segment that would come last of those that are here is given up; there is one. When the kernel has its
 * pages, all jobs are settled. */
void warm_close(struct job *job);
/* What has not gone yet is not given up. */
void warm_keep_all(struct job *job);

/* It is a tenant of the cache. */
extern const struct cache_tenant warm_tenant;

/* Gives all of it back; nothing of it is taken or on its way. Its budget is the caller's. */
void warm_free(struct job *job);

#endif
