/* A requester: the client whose request a job's store works at. If the client is gone before that is done,
 * the work is finished all the same, and nobody is told. */
#ifndef TIERD_DAEMON_REQUESTER_H
#define TIERD_DAEMON_REQUESTER_H

#include <sys/types.h>

#include "daemon/request/pending.h"

/* Embedded in the request. */
struct requester {
	struct queue link;	 /* of the client's */
	struct pending *pending; /* NULL: the client is gone */
	uid_t uid;
};

/* requesters: of the client, who has sent it. */
void requester_begin(struct requester *requester, struct pending *pending, struct queue *requesters);
/* The request is over, and has been answered if the client is there. */
void requester_end(struct requester *requester);

/* The client is gone. */
void requesters_forget(struct queue *requesters);

#endif
