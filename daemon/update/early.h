/* Early updates: a pack whose gradients of the open step are complete is updated before the step is decided,
 * so that the devices work while the backward pass still runs.
 *
 * Nobody sees an early update before the decision. The store holds back what is written. New parameters lie
 * in the place of the gradients, which are not needed any more; where sums may be spilled, they are in the
 * store alone. When the step is decided, its sweep publishes them. If the step comes to nothing, the updates
 * are withdrawn, and the gradients with them. */
#ifndef TIERD_DAEMON_EARLY_H
#define TIERD_DAEMON_EARLY_H

#include "daemon/model/model.h"

/* For a plan: the memory that an announced step takes. */
uint64_t early_metadata_bytes(const struct job *job);

/* A micro-batch of the unit has been summed. */
void early_note_sum(struct job *job, uint32_t unit);
/* In the job's turn. */
void early_go_on(struct job *job);
/* A pack is being measured or started, or waits for that. */
bool early_has_work(const struct job *job);
/* A chunk of the pack has been computed or written. */
void early_check_pack(struct job *job, uint32_t pack);

/* The open step is decided, and its sweep begins: no more packs are updated early. */
void early_decide(struct job *job);
bool early_is_decided(const struct job *job);
/* The sweep may begin with the pack: it has no early update, or that is far enough. */
bool early_lets(struct job *job, uint32_t pack);
/* The sweep has come through the pack: its early update is seen, in the store as soon as all is written.
 * False: it had none. */
bool early_publish(struct job *job, uint32_t pack);
/* All of the pack's chunks are written. */
void early_end_adoption(struct job *job, uint32_t pack);
/* New parameters stay in host memory until the decision; else they are read again when they are wanted. */
bool early_keeps(const struct job *job);

/* The open step comes to nothing. Of a decided step nothing is withdrawn. */
void early_give_up(struct job *job);
/* Nor will a decided step be applied. Transfers come home. */
void early_withdraw(struct job *job);
/* Updates that are withdrawn still have transfers; when these are home, the job has a turn and sums go on. */
bool early_is_ending(const struct job *job);

/* There are early updates that are neither published nor quite withdrawn. */
bool early_is_busy(const struct job *job);
/* Some of them are being measured, computed or written: the job has another turn. */
bool early_is_under_way(const struct job *job);
/* Of a job that is freed: it is not busy. */
void early_clear(struct job *job);

/* The square sums of the unit's blocks, as norm_measure() gives them, if its sum may not be its gradients any
 * more; else NULL. */
const double *early_norm(const struct job *job, uint32_t unit);

#endif
