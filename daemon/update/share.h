/* A share: who updates the next elements of a job, its processors or its GPUs, so that both end at about the
 * same time, or so that GPUs take a fraction that was asked for. The bits are the same. */
#ifndef TIERD_DAEMON_UPDATE_SHARE_H
#define TIERD_DAEMON_UPDATE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

enum share_side { SHARE_PROCESSORS, SHARE_GPUS, SHARE_SIDES };

/* How fast a side is, by what it did of late while it had something to do: in elements, or in bytes of a
 * GPU's bus. */
struct share_pace {
	uint64_t waiting; /* in flight */
	uint64_t since_ns;
	double done, busy_ns;
	uint64_t all; /* elements, since it began */
};

/* Elements that must all go to one side. */
struct share_piece {
	uint64_t elements;
	uint64_t bus_bytes; /* that GPUs copy for them, in the direction in which they copy more */
	bool is_there;	    /* a GPU has what was made of them before */
};

struct share {
	struct share_pace sides[SHARE_SIDES];
	bool has_tried; /* the GPUs had some in this step */
	double owed;	/* elements, to GPUs, of a fraction */
};

/* GPUs are measured anew in each step, so that those that were slow once may be fast again. */
void share_begin_step(struct share *share);
/* fraction: 0 to 1; below 0: as measured. GPUs rather get what is there. */
enum share_side share_choose(struct share *share, float fraction, const struct share_piece *piece);
/* It is on its way there, and has come home. */
void share_begin(struct share *share, enum share_side side, const struct share_piece *piece, uint64_t now_ns);
void share_end(struct share *share, enum share_side side, const struct share_piece *piece, uint64_t now_ns);

#endif
