/* Arena: the memory that clients read parameters in, and the directory that says where they lie. */
#ifndef TIERD_DAEMON_ARENA_H
#define TIERD_DAEMON_ARENA_H

#include "daemon/model/model.h"
#include "daemon/resources/resources.h"

/* On a worker, of a job that is being planned: its memory, with the pages of its first piece at least.
 * is_return: as arena_open() takes it. ret_pinning: what engine_buffer_add() said, 0 if nobody asked it. A
 * negative errno; what there is of the memory is the caller's. */
int arena_make(const struct job *job, bool is_return, uint64_t bytes, struct memory *ret_arena,
	       int *ret_pinning);

/* Takes the job's memory from what was made for it, and gives it up again. */
void arena_take_over(struct job *job, struct made *made);
void arena_give_up(struct job *job, struct made *made);

/* Fills the directory, and makes the slots usable. is_return: the job has had a state before. */
void arena_open(struct job *job, bool is_return);
/* The other pages come from now on, piece by piece; with each the job is settled. Until cache_is_quiet() the
 * job keeps its memory. */
void arena_fetch(struct job *job);
bool arena_is_coming(const struct job *job);

/* Clients see the epoch in the directory, where there is one. */
void arena_show_epoch(struct job *job);

/* What clients map; borrowed. No length: there is none. */
struct arena_shared {
	const struct memory *directory, *arena, *cache;
};
struct arena_shared arena_share(const struct job *job);

#endif
