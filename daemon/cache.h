/* Cache: what a job's arena holds beyond what is promised to it, in tracts. It shrinks when others need the
 * memory, and grows while there is more than enough. */
#ifndef TIERD_DAEMON_CACHE_H
#define TIERD_DAEMON_CACHE_H

#include "daemon/job.h"

/* The job, which is being planned, lacks bytes: others have as much in their caches, and it has not waited
 * for them for too long. */
bool cache_can_cover(const struct job *job, uint64_t bytes);
/* They give up job->shortage bytes, and the job is settled whenever there is more; it is planned again then.
 * False: out of memory. */
bool cache_await(struct job *job);
/* It does not wait any more: tracts that nobody needs are not given up. */
void cache_end_wait(struct job *job);

/* The job takes bytes beside its plan: caches give up what lacks for that, and for what they are to leave.
 * False: they have not so much. */
bool cache_make_room(const struct job *job, uint64_t bytes);

/* In the job's turn: empties what it gives up, and takes what there is. */
void cache_go_on(struct job *job);

/* All that has a slot waits for another: the job gets some back, if there are any. */
bool cache_rescue(struct job *job);

#endif
