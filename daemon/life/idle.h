/* Idle: what becomes of a job that has a state and no ranks. Its host memory is given back after a while, or
 * when somebody needs it, if all of its state is on NVMe; the state stays until somebody drops it. */
#ifndef TIERD_DAEMON_IDLE_H
#define TIERD_DAEMON_IDLE_H

#include "daemon/model/model.h"
#include "daemon/resources/resources.h"

/* Its last rank has left. */
void idle_begin(struct job *job);

/* Gives its host memory back at once, of a trained job whose state is all on NVMe. False: it has not come to
 * rest yet. */
bool idle_release(struct job *job);

/* Why not yet, of one that has no ranks: -EBUSY: a process, which is named, holds what it gathered; -EAGAIN:
 * it will come to rest. */
int idle_refuse(const struct job *job, char *message, size_t size);

/* What the job gives back, beside its cache, when somebody needs it; 0: it is not idle, or cannot. */
uint64_t idle_spare_bytes(const struct job *job);
/* Those that have come to rest give theirs back, who has been idle longest first, until that is as much;
 * returns how much it is. */
uint64_t idle_give_up(const struct claim *claim, uint64_t bytes);

/* They are a holder of the node, of what they can give beside their caches. */
extern const struct holder idle_holder;

/* Gives back what it can do without, of an idle job that may: its memory, or what ranks have left that came
 * in vain. False: it has not come to rest yet. */
bool idle_give(struct job *job);

/* A rank has come, or the job ends. */
void idle_end(struct job *job);

#endif
