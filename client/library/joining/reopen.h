/* Reopening: a job goes on over another connection, or comes back after this rank was sent away from it. All
 * with the lock held. */
#ifndef TIERD_CLIENT_REOPEN_H
#define TIERD_CLIENT_REOPEN_H

#include "client/library/joining/joining.h"

/* Over a new connection: opens the job, and defines its units. Returns errors of the connection alone; a job
 * that cannot be opened reports that at its next call. */
int job_reopen(struct tierd_job *job);

/* Opens a job again that this rank was sent away from, over the same connection. tierd_job_ready calls it.
 * While the job is not there yet, it tries again for reconnect_ms. */
int job_return(struct tierd_job *job);

/* Waits for the other ranks, as tierd_job_ready; then the job goes on as if nothing had happened. */
int job_rejoin(struct tierd_job *job);

#endif
