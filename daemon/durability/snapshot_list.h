/* Snapshot list: those that a job has, and what each of them keeps. */
#ifndef TIERD_DAEMON_SNAPSHOT_LIST_H
#define TIERD_DAEMON_SNAPSHOT_LIST_H

#include "daemon/request/request.h"

/* Answers at once, or, if what they keep is to be measured, when the store has done that. requesters: of
 * the client, until then. */
void snapshot_list(struct pending *pending, const Tierd__Wire__SnapshotsRead *read, struct queue *requesters);

#endif
