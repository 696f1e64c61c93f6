/* A requester: the client whose request a job's store works at, which may be gone before that is done. What
 * it has asked for happens all the same, and nobody is told. */
#ifndef TIERD_DAEMON_REQUESTER_H
#define TIERD_DAEMON_REQUESTER_H

#include <sys/types.h>

#include "daemon/request/pending.h"

/* Embedded in the request. */
struct requester {
	struct queue link;	 /* of the client's */
	struct pending *pending; /* NULL: nobody wants to know any more */
	uid_t uid;
};

/* requesters: of the client, who has sent it. */
void requester_begin(struct requester *requester, struct pending *pending, struct queue *requesters);
/* The request is over; it has been answered, if anybody wanted that. */
void requester_end(struct requester *requester);

/* The client is gone. */
void requesters_forget(struct queue *requesters);

#endif
