/* Kept: steps that a job keeps for readers, and that no snapshot has. */
#ifndef TIERD_DAEMON_KEPT_H
#define TIERD_DAEMON_KEPT_H

#include "daemon/model/model.h"

/* What somebody reads of a job's store beside its last step; embedded in its reader. */
struct kept {
	struct queue link; /* of the job's */
	const char *name;  /* the snapshot's when it was opened; "": it never had one */
	uint64_t step;
	uint64_t seconds; /* when that was, since 1970 */
	uid_t uid;	  /* the reader's */
};

/* From now on until its link is removed. */
void kept_begin(struct job *job, struct kept *kept);

/* The first so many, borrowed. */
#define KEPT_LISTED_MOST 64
unsigned kept_list(const struct job *job, const struct kept *ret_kept[KEPT_LISTED_MOST]);

#endif
