/* Pinned steps: those that a job keeps for readers, and that no snapshot has. */
#ifndef TIERD_DAEMON_PINNED_STEP_H
#define TIERD_DAEMON_PINNED_STEP_H

#include "daemon/model/model.h"

/* What somebody reads of a job's store beside its last step; embedded in its reader. */
struct pinned_step {
	struct queue link; /* of the job's */
	const char *name;  /* the snapshot's when it was opened; "": it never had one */
	uint64_t step;
	uint64_t seconds; /* when that was, since 1970 */
	uid_t uid;	  /* the reader's */
};

/* From now on until its link is removed. */
void pinned_step_begin(struct job *job, struct pinned_step *pinned);

/* The first so many, borrowed. */
#define PINNED_STEPS_LISTED_MOST 64
unsigned pinned_steps_list(const struct job *job,
			   const struct pinned_step *ret_pinned[PINNED_STEPS_LISTED_MOST]);

#endif
