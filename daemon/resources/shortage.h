/* A shortage: host memory that a job which is planned, or a reader, lacks, and waits for until caches of
 * jobs have given it up, or, where those have too little, jobs that are idle. */
#ifndef TIERD_DAEMON_SHORTAGE_H
#define TIERD_DAEMON_SHORTAGE_H

#include <stdbool.h>

#include "common/queue.h"
#include "daemon/resources/room.h"

struct shortage {
	struct queue link; /* of the node's, while it is waited for */
	struct claim claim;
	struct job *job;   /* that is planned, or read; it outlives the wait */
	uint64_t bytes;	   /* that lacked the last time; 0: none that others could give back */
	uint64_t since_ns; /* it is waited for; 0: it is not */
	struct event *patience;
};

void shortage_init(struct shortage *shortage, struct claim claim, struct job *job);

/* Caches have as much, and it has not been waited for them for too long. */
bool shortage_can_be_covered(const struct shortage *shortage, uint64_t bytes);

/* Caches give up what lacks, and idle jobs what caches do not have: who would be refused otherwise needs it
 * more. The job is settled whenever there may be more; who lacks it tries again then. False: it cannot be
 * covered, or there is no memory to wait. */
bool shortage_await(struct shortage *shortage);

/* There is enough, or nobody wants it any more: what nobody else needs is not given up. Again, or of one that
 * was not awaited: does nothing. */
void shortage_end(struct shortage *shortage);

/* Somebody waits. */
bool shortage_is_awaited(const struct node *node);

#endif
