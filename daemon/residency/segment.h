/* A segment: slots of a cache side by side, whose pages come from the kernel and go to it off the loop. It is
 * charged to its job from the moment that it is planned, or comes, until the kernel has its pages back. */
#ifndef TIERD_DAEMON_SEGMENT_H
#define TIERD_DAEMON_SEGMENT_H

#include "daemon/model/model.h"
#include "daemon/resources/resources.h"

/* Who uses the pages of segments beside the job's slots; the table is of a module above. */
struct segment_listener {
	/* It is here from now on. */
	void (*came)(struct job *job, uint32_t segment);
	/* It is empty, and goes once segment_go() is called, at once or later. */
	void (*leaves)(struct job *job, uint32_t segment);
};

uint64_t segment_bytes(const struct job *job, enum segment_state state);
/* Of those that are charged, and not here yet. */
uint64_t segment_bytes_to_come(const struct job *job);

/* Of one that is away or planned, and charged: it is here later, and the job settled. False: out of memory.
 */
bool segment_fetch(struct job *job, uint32_t segment);
/* Begins to fetch the next one that is planned, if there is one and nothing else comes or goes: so other jobs
 * get turns of the worker between them. */
void segment_fetch_planned(struct job *job);
/* Gives up so many bytes of those that are planned, or all that there are, at once. Returns how many. */
uint64_t segment_give_planned(struct job *job, uint64_t bytes);

/* Evicts what can be evicted of one that drains; when nothing is left it goes, and when the kernel has its
 * pages, all jobs are settled. */
void segment_empty(struct job *job, uint32_t segment);

/* Nobody uses its pages any more; of one that does not leave it does nothing. */
void segment_go(struct job *job, uint32_t segment);

/* That could not be emptied now. */
uint32_t segment_held_slots(struct job *job, const struct slot_segment *segment);

/* On a worker, of a job that is being planned: the file of its cache, if it has one. A negative errno; what
 * there is of it is the caller's. */
int segment_make_cache(const struct job *job, struct memory *ret_cache);

#endif
