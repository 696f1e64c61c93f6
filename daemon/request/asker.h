/* An asker: the client whose request a job's store works at, which may be gone before that is done. What it
 * has asked for happens all the same, and nobody is told. */
#ifndef TIERD_DAEMON_ASKER_H
#define TIERD_DAEMON_ASKER_H

#include <sys/types.h>

#include "daemon/request/pending.h"

/* Embedded in the request. */
struct asker {
	struct queue link;	 /* of the client's */
	struct pending *pending; /* NULL: nobody wants to know any more */
	uid_t uid;
};

/* askers: of the client, who has sent it. */
void asker_begin(struct asker *asker, struct pending *pending, struct queue *askers);
/* The request is over; it has been answered, if anybody wanted that. */
void asker_end(struct asker *asker);

/* The client is gone. */
void askers_forget(struct queue *askers);

#endif
