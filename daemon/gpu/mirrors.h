/* Mirrors: copies of values and state that stay on a GPU from one update to the next, in what gpu_budget
 * leaves there. An update on that GPU copies gradients alone to it, and new values and state back, so host
 * memory and store have all of it at each step, and nothing is lost with a GPU.
 *
 * A mirror has its piece, and is right for no other: which chunk that is, which elements of it, and which
 * pass made their state. Each pass over state has a number of its own, whoever makes it, so nobody who
 * changes state has to know of mirrors. */
#ifndef TIERD_DAEMON_GPU_MIRRORS_H
#define TIERD_DAEMON_GPU_MIRRORS_H

#include "daemon/gpu/updates.h"

#define MIRROR_RUNS 16

/* Elements of a chunk, from that one of it on. */
struct mirror_run {
	uint32_t at, count;
};

struct mirror_piece {
	uint32_t pack;
	enum unit_section section;
	uint64_t first; /* element of the section; these three say which chunk */
	uint64_t pass;	/* 0: nobody knows what made its state */
	unsigned run_count;
	struct mirror_run runs[MIRROR_RUNS];
};

/* Room for a chunk's mirror. */
struct mirror;

/* With each step, before it takes mirrors. bytes: of the largest chunk's values and state, as they lie in a
 * mirror; the same in all steps. */
void mirrors_begin_step(struct job *job, uint64_t bytes);
/* A GPU that takes updates and has that piece; NULL: none has. */
struct gpu_updates *mirrors_find(const struct job *job, const struct mirror_piece *piece);

/* For an update on that GPU: the chunk's mirror, or room for one, until mirror_give(). NULL: there is none.
 * ret_is_right: it has the piece. */
struct mirror *mirror_take(struct gpu_updates *updates, const struct mirror_piece *piece, bool *ret_is_right);
driver_address mirror_address(const struct mirror *mirror);
/* It has that piece now; NULL: nothing. */
void mirror_give(struct mirror *mirror, const struct mirror_piece *piece);
/* Processors update the chunk: its room is for others. */
void mirrors_drop(const struct job *job, const struct mirror_piece *piece);

#endif
