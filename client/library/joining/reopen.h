/* Reopening: a job goes on over another connection, or comes back after this rank was sent away from it. All
 * with the lock held. */
#ifndef TIERD_CLIENT_REOPEN_H
#define TIERD_CLIENT_REOPEN_H

#include "client/library/joining/joining.h"

/* Over a new connection: opens the job, and defines its units. An error is the connection's; a job that
 * cannot be opened says so at its next call. */
int job_reopen(struct tierd_job *job);

/* Opens a job again that this rank was sent away from, over the same connection: tierd_job_ready does, since
 * until then the rank knows of nothing but the end of its epoch. For reconnect_ms, as long as the job is not
 * there yet. */
int job_return(struct tierd_job *job);

/* Waits for the other ranks, as tierd_job_ready; then the job goes on as if nothing had happened. */
int job_rejoin(struct tierd_job *job);

#endif
