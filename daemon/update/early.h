/* Early updates: packs whose gradients of the open step are complete are updated before the step is decided,
 * so that the devices work while the backward still runs.
 *
 * Nobody sees anything of it: what is written is held back in the store, and new parameters lie where the
 * gradients were, which are not needed any more, or, where sums may be spilled, in the store alone, until the
 * decision's sweep comes to the pack and publishes them. If there is no such decision all of it is withdrawn,
 * and with it the gradients. */
#ifndef TIERD_DAEMON_EARLY_H
#define TIERD_DAEMON_EARLY_H

#include "daemon/model/model.h"

/* The memory that an announced step takes, of a job that is planned. */
uint64_t early_metadata_bytes(const struct job *job);

/* The unit's next micro-batch has been summed. */
void early_note_sum(struct job *job, uint32_t unit);
/* In the job's turn. */
void early_go_on(struct job *job);
/* A pack is being measured or started, or can be. */
bool early_has_work(const struct job *job);
/* A chunk of the pack has come farther. */
void early_check_pack(struct job *job, uint32_t pack);

/* The open step is decided, and its sweep begins: no more packs are begun. */
void early_decide(struct job *job);
bool early_is_decided(const struct job *job);
/* Whether that sweep may begin on the pack, which may have been begun before it. */
bool early_lets(struct job *job, uint32_t pack);
/* The sweep has done with the pack: what was held back is seen, in the store as soon as it is written. False:
 * it was not early. */
bool early_publish(struct job *job, uint32_t pack);
/* All of the pack's chunks are written. */
void early_end_adoption(struct job *job, uint32_t pack);
/* New parameters stay in host memory until then; else they are read again when somebody wants them. */
bool early_keeps(const struct job *job);

/* The open step will not be applied as it is; nothing happens to one that is decided. */
void early_give_up(struct job *job);
/* A decided one neither. What is on its way comes home. */
void early_withdraw(struct job *job);
/* What has been withdrawn is still on its way; then come the job's turn, and sums of its units. */
bool early_is_ending(const struct job *job);

/* Something of it is on its way, or waits for the decision. */
bool early_is_busy(const struct job *job);
/* Something is on its way, so that it goes on without anybody. */
bool early_is_under_way(const struct job *job);
/* Of a job that is freed: it is not busy. */
void early_clear(struct job *job);

/* Of a unit whose sum may not be the gradients any more: the square sums of its blocks, as norm_measure()
 * gives them; else NULL. */
const double *early_norm(const struct job *job, uint32_t unit);

#endif
