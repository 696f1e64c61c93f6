/* Roll back: a job's state becomes what one of its snapshots is, and the job comes back at that step. */
#ifndef TIERD_DAEMON_ROLL_BACK_H
#define TIERD_DAEMON_ROLL_BACK_H

#include "daemon/request/request.h"

/* Answers the request, once the job is there again. requesters: of the client, until then. */
void roll_back_job(struct pending *pending, const Tierd__Wire__JobRollBack *request,
		   struct queue *requesters);

/* A snapshot whose map cannot be read is given up, and the job comes back where it was: what is free is
 * counted anew. */
void roll_back_delete_lost(struct pending *pending, const Tierd__Wire__SnapshotDelete *request,
			   struct queue *requesters);

#endif
