/* Roll back: a job's state becomes what one of its snapshots is, and the job comes back at that step. */
#ifndef TIERD_DAEMON_ROLL_BACK_H
#define TIERD_DAEMON_ROLL_BACK_H

#include "daemon/pending.h"

/* Answers the request, once the job is there again. askers: of the client, until then. */
void roll_back_job(struct pending *pending, const Tierd__Wire__JobRollBack *request, struct queue *askers);

#endif
