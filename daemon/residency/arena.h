/* Arena: the memory that clients read parameters in, and the directory that says where they lie. */
#ifndef TIERD_DAEMON_ARENA_H
#define TIERD_DAEMON_ARENA_H

#include "daemon/model/model.h"
#include "daemon/resources/resources.h"

/* Takes the job's memory from what was made for it, and gives it up again. */
void arena_take_over(struct job *job, struct made *made);
void arena_give_up(struct job *job, struct made *made);

/* Fills the directory, and makes the slots usable. is_return: the job has had a state before. */
void arena_open(struct job *job, bool is_return);

/* Clients see the epoch in the directory, where there is one. */
void arena_show_epoch(struct job *job);

/* What clients map; borrowed. No length: there is none. */
struct arena_shared {
	const struct memory *directory, *arena, *cache;
};
struct arena_shared arena_share(const struct job *job);

#endif
