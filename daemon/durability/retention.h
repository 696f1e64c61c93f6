/* Retention: which of its durable steps a job keeps by itself. Each k-th is kept as a snapshot, named step-N,
 * and of those the last ones stay. */
#ifndef TIERD_DAEMON_RETENTION_H
#define TIERD_DAEMON_RETENTION_H

#include "daemon/model/model.h"

/* The rule counts from this step on: no earlier step is kept by itself. */
void retention_begin(struct job *job, uint64_t step);

/* The owner has another rule. Answers when that is durable. requesters: of the client, until then. */
void retain_snapshots(struct pending *pending, const Tierd__Wire__JobRetain *request,
		      struct queue *requesters);
/* Whoever opens the job may still ask for the rule that it was made with. */
void retain_overlook(const struct job *job, struct job_options *asked);

#endif
