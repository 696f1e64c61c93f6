/* Drop: a job and its state end because its owner or an administrator says so. */
#ifndef TIERD_DAEMON_DROP_H
#define TIERD_DAEMON_DROP_H

#include "daemon/model/model.h"
#include "daemon/request/request.h"

/* Answers the request. Its memory and files are given back when nothing of it is in flight any more. */
void drop_job(struct pending *pending, const Tierd__Wire__JobDrop *request);

/* Its ranks leave at once, and are told why. */
void drop_ranks(struct job *job, const char *reason);

/* If nothing is written to its store before all jobs in it have let go of it: each does, and comes back. */
void drop_others(const struct job *job);

#endif
