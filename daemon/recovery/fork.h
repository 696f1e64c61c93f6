/* Fork: a new job that begins as a snapshot of another one is, or as its last step, in the same store: what
 * neither has changed lies there once. */
#ifndef TIERD_DAEMON_FORK_H
#define TIERD_DAEMON_FORK_H

#include "daemon/model/model.h"

/* requesters: of the client, until they are answered. */
void fork_job(struct pending *pending, const Tierd__Wire__JobFork *request, struct queue *requesters);

#endif
