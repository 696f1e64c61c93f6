/* A shortage: host memory that the plan of a job, or a reader, lacks. It waits until caches have given so
 * much up; if they have too little, idle jobs do. */
#ifndef TIERD_DAEMON_SHORTAGE_H
#define TIERD_DAEMON_SHORTAGE_H

#include <stdbool.h>

#include "common/queue.h"
#include "daemon/resources/headroom.h"

struct shortage {
	struct queue link; /* of the node's, while it is waited for */
	struct claim claim;
	struct job *job;   /* that is planned, or read; it outlives the wait */
	uint64_t bytes;	   /* that were missing the last time; 0: none that others could give back */
	uint64_t since_ns; /* when somebody began to wait for them; 0: nobody waits */
	struct event *patience;
};

void shortage_init(struct shortage *shortage, struct claim claim, struct job *job);

/* Caches have so much, and nobody has waited too long for them. */
bool shortage_can_be_covered(const struct shortage *shortage, uint64_t bytes);

/* Caches begin to give up what is missing, and idle jobs the rest: who would be refused otherwise needs it
 * more. The job is settled whenever there may be more memory, and tries again then. False: nobody has so
 * much, or there is no memory to wait. */
bool shortage_await(struct shortage *shortage);

/* There is enough, or nobody wants it any more. If nobody else waits, holders keep what has not gone yet.
 * Does nothing if nobody waited. */
void shortage_end(struct shortage *shortage);

/* Somebody waits for memory. */
bool shortage_is_awaited(const struct node *node);

#endif
