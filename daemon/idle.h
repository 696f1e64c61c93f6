/* Idle: what becomes of a job that has a state and no ranks. Its host memory is given back after a while, if
 * all of its state is on NVMe; the state stays until somebody drops it. */
#ifndef TIERD_DAEMON_IDLE_H
#define TIERD_DAEMON_IDLE_H

#include "daemon/job.h"

/* When it has come to rest, all of its state is on NVMe, whatever of it lives in host memory meanwhile. */
bool idle_may_release(const struct job *job);

/* Its last rank has left. */
void idle_begin(struct job *job);

/* Gives its host memory back at once, of a trained job whose state is all on NVMe. False: it has not come to
 * rest yet. */
bool idle_release(struct job *job);

/* A rank has come, or the job ends. */
void idle_end(struct job *job);

#endif
