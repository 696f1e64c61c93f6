/* Retention: which of its durable steps a job keeps by itself. Each k-th is kept as a snapshot, named step-N,
 * and of those the last ones stay. */
#ifndef TIERD_DAEMON_RETENTION_H
#define TIERD_DAEMON_RETENTION_H

#include "daemon/model/model.h"

/* The job's rule counts from this step on: the first that is kept is a multiple, and none that was there
 * before whoever made the rule, or the fork, could see it. */
void retention_begin(struct job *job, uint64_t step);

/* The owner has another rule. Answers when that is durable. requesters: of the client, until then. */
void retain_snapshots(struct pending *pending, const Tierd__Wire__JobRetain *request,
		      struct queue *requesters);
/* Who opens the job need not know that. */
void retain_overlook(const struct job *job, struct job_options *asked);

#endif
