/* Idle: a job that has a state and no ranks. If all of its state is on NVMe, its host memory is given back
 * after a while, or when somebody needs it. The state stays until somebody drops it. */
#ifndef TIERD_DAEMON_IDLE_H
#define TIERD_DAEMON_IDLE_H

#include "daemon/model/model.h"
#include "daemon/resources/resources.h"

/* Its last rank has left. */
void idle_begin(struct job *job);

/* Gives its host memory back at once, of a trained job whose state is all on NVMe. False: it has not come to
 * rest yet. */
bool idle_release(struct job *job);

/* Why a job without ranks cannot give its memory back yet. -EBUSY: a process, which is named, holds what it
 * gathered; -EAGAIN: it will come to rest. */
int idle_refuse(const struct job *job, char *message, size_t size);

/* What the job gives back, beside its cache, when somebody needs it; 0: it is not idle, or cannot. */
uint64_t idle_spare_bytes(const struct job *job);
/* Jobs that have come to rest give their memory back, the one that has been idle longest first, until that is
 * so many bytes. Returns how many it is. */
uint64_t idle_give_up(const struct claim *claim, uint64_t bytes);

/* What idle jobs can give beside their caches. */
extern const struct holder idle_holder;

/* An idle job gives back what it can do without: its memory, or the windows of ranks that came when there was
 * no room for the job. False: it has not come to rest yet. */
bool idle_give(struct job *job);

/* A rank has come, or the job ends. */
void idle_end(struct job *job);

#endif
