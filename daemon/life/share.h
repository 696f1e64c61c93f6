/* Share: the owner changes whom a job is shared with. */
#ifndef TIERD_DAEMON_SHARE_H
#define TIERD_DAEMON_SHARE_H

#include "daemon/model/model.h"

/* The change counts at once: a user who may no longer train or see the job loses its ranks, readers,
 * verifications and traces. The request is answered when the change is durable, if the job is. requesters: of
 * the client, until then. */
void share_job(struct pending *pending, const Tierd__Wire__JobShare *request, struct queue *requesters);

/* A rank that opens the job need not ask for what was changed: the job's sharing becomes the rank's. */
void share_overlook(const struct job *job, struct job_options *asked);

/* A job that is brought back from a snapshot, or as a fork, has an older sharing in its record: the one that
 * was set since replaces it. */
struct sharing {
	bool is_known, is_set;
	uint32_t sharing, group;
};
struct sharing share_of(const struct job *job);
void share_restore(struct job *job, const struct sharing *sharing);

#endif
