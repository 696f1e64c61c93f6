/* Reopening: what becomes of a job when its connection is lost, or this rank is sent away from it, and how it
 * goes on then. */
#ifndef TIERD_CLIENT_REOPEN_H
#define TIERD_CLIENT_REOPEN_H

#include "client/library/pages/job.h"

/* Only where the node reconnects. -ENOMEM. */
int reopen_remember(const struct tierd_node *node, const ProtobufCMessage *message,
		    struct remembered *ret_message);

/* ---- With the lock held ---- */

/* The connection is lost; from now on the job is stale if something of this rank's was undecided. */
void job_lose(struct tierd_job *job);

/* Over a new connection: opens the job, and defines its units. An error is the connection's; a job that
 * cannot be opened says so at its next call. */
int job_reopen(struct tierd_job *job);

/* From now on the job is stale. A rank that may return was sent away: the job was rolled back. */
void job_epoch_ended(struct tierd_job *job, const Tierd__Wire__Event__EpochEnded *event);

/* Opens a job again that this rank was sent away from, over the same connection: tierd_job_ready does, since
 * until then the rank knows of nothing but the end of its epoch. For reconnect_ms, as long as the job is not
 * there yet. */
int job_return(struct tierd_job *job);

#endif
