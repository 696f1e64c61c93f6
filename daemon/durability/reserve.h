/* Reserve: the room for snapshots that a job's store has, and how it grows. */
#ifndef TIERD_DAEMON_RESERVE_H
#define TIERD_DAEMON_RESERVE_H

#include "daemon/model/model.h"

void reserve_snapshots(struct pending *pending, const Tierd__Wire__JobReserve *request,
		       struct queue *requesters);
/* Charges the job for room that its store has got since the job was made. A negative errno with a message:
 * the job's budgets do not suffice. */
int reserve_find(struct job *job, const struct store *store, char *message, size_t size);

/* 0, or -EPERM with a message: the user's quota does not allow so many. An administrator may give somebody
 * else as many as a store can have. */
int reserve_check_limit(const struct job *job, const struct port *port, unsigned snapshots, char *message,
			size_t size);
/* Whoever opens the job may still ask for the room that it was made with. */
void reserve_overlook(const struct job *job, struct job_options *asked);

#endif
