/* Reserve: the room for snapshots that a job's store has, and how it grows. */
#ifndef TIERD_DAEMON_RESERVE_H
#define TIERD_DAEMON_RESERVE_H

#include "daemon/model/model.h"

void reserve_snapshots(struct pending *pending, const Tierd__Wire__JobReserve *request,
		       struct queue *requesters);
/* Of a store that was found: it may have grown since its job was made. A negative errno with a message: the
 * job's budgets have no room for that. */
int reserve_find(struct job *job, const struct store *store, char *message, size_t size);

/* 0, or -EPERM with a message: the most that who asks may have room for. What an administrator does for
 * somebody else has no limit but that of stores. */
int reserve_check_limit(const struct job *job, const struct port *port, unsigned snapshots, char *message,
			size_t size);
/* Who opens the job need not know that it has got more room than it was made with. */
void reserve_overlook(const struct job *job, struct job_options *asked);

#endif
