/* Warm state: what the optimizer keeps of some chunks stays in host memory from one sweep to the next, where
 * there is memory that nobody else wants; so it is not read again.
 *
 * Sweeps pass over all chunks in turns, so whatever was used last is wanted last: nothing is evicted for
 * something else. Which chunks are warm is fixed, and they are spread evenly, so that the devices always have
 * something to do. They lie in shares, whose memory comes and goes at once; each share has chunks of the
 * whole sweep, and so have the first few of them together, however many there are. */
#ifndef TIERD_DAEMON_WARM_H
#define TIERD_DAEMON_WARM_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/unit_layout.h"

struct job;
struct warm;

/* One chunk's. */
struct warm_chunk {
	uint64_t offset; /* in its share */
	uint32_t share;	 /* SLOT_NONE: it is never warm */
	bool is_filled;	 /* with what the store shows, or will when an early update is published */
};

/* Host memory that it takes to know which chunks are warm. */
uint64_t warm_metadata_bytes(const struct job *job);

/* ---- For updates ---- */

/* The chunk of the pack's section that begins at that element. If it is warm, or can be, it is the caller's
 * until it is given back; NULL: neither. ret_data: where its states lie, one after the other, each from a new
 * page on. It is not filled any more; ret_is_filled: what is there is right. */
struct warm_chunk *warm_take(struct job *job, uint32_t pack, enum unit_section section, uint64_t first,
			     char **ret_data, bool *ret_is_filled);
/* is_filled: again. */
void warm_give(struct job *job, struct warm_chunk *chunk, bool is_filled);
/* What the store shows of the pack is not what its chunks have. None of them is taken. */
void warm_forget_pack(struct job *job, uint32_t pack);

/* ---- For caches ---- */

/* In shares that are not away: charged to the job. */
uint64_t warm_bytes(const struct job *job);
/* Were all of it warm; 0: nothing of it can be. */
uint64_t warm_bytes_most(const struct job *job);
/* Of warm_bytes(): what may be given up; and what is given up already, and has not gone. */
uint64_t warm_bytes_here(const struct job *job);
uint64_t warm_bytes_leaving(const struct job *job);
/* Of the share that would come next; 0: none would. */
uint64_t warm_bytes_next(struct job *job);
/* Of the one that would be given up first; there is one. */
uint64_t warm_bytes_last(const struct job *job);
/* That share, which is charged, is here later, and the job settled. */
void warm_fetch(struct job *job);
/* The share that would come last of those that are here is given up; there is one. When the kernel has its
 * pages, all jobs are settled. */
void warm_close(struct job *job);
/* In the job's turn: what is given up goes, if nobody uses it any more. */
void warm_go_on(struct job *job);
/* What has not gone yet is not given up. */
void warm_keep_all(struct job *job);

/* Gives all of it back; nothing of it is taken or on its way. Its budget is the caller's. */
void warm_free(struct job *job);

#endif
