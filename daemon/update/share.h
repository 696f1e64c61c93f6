/* A share: who updates the next elements of a job, its processors or its GPUs, so that both end at about the
 * same time, or so that GPUs take a fraction that was asked for. The bits are the same. */
#ifndef TIERD_DAEMON_UPDATE_SHARE_H
#define TIERD_DAEMON_UPDATE_SHARE_H

#include <stdbool.h>
#include <stdint.h>

enum share_side { SHARE_PROCESSORS, SHARE_GPUS, SHARE_SIDES };

/* How fast a side is, by what it did of late while it had something to do. */
struct share_pace {
	uint64_t waiting; /* elements in flight */
	uint64_t since_ns;
	double elements, busy_ns;
	uint64_t all; /* elements, since it began */
};

struct share {
	struct share_pace sides[SHARE_SIDES];
	bool has_tried; /* the GPUs had some in this step */
	double owed;	/* elements, to GPUs, of a fraction */
};

/* GPUs are measured anew in each step, so that those that were slow once may be fast again. */
void share_begin_step(struct share *share);
/* fraction: 0 to 1; below 0: as measured. Of so many elements, which must all go to one side. */
enum share_side share_choose(struct share *share, float fraction, uint64_t elements);
/* They are on their way there, and have come home. */
void share_begin(struct share *share, enum share_side side, uint64_t elements, uint64_t now_ns);
void share_end(struct share *share, enum share_side side, uint64_t elements, uint64_t now_ns);

#endif
