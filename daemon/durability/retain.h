/* Retain: which steps a job keeps by itself, said after it was made. */
#ifndef TIERD_DAEMON_RETAIN_H
#define TIERD_DAEMON_RETAIN_H

#include "daemon/model/model.h"

/* Answers when that is durable. requesters: of the client, until then. */
void retain_snapshots(struct pending *pending, const Tierd__Wire__JobRetain *request,
		      struct queue *requesters);

/* Who opens the job need not know. */
void retain_overlook(const struct job *job, struct job_options *asked);

#endif
