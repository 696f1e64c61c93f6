/* Cache: what a job's arena holds beyond what is promised to it, in tracts. It shrinks when others need the
 * memory, and grows while there is more than enough. */
#ifndef TIERD_DAEMON_CACHE_H
#define TIERD_DAEMON_CACHE_H

#include "daemon/model/job.h"

/* Caches that may give to who claims it begin to give up as many bytes, with what is on its way already. */
void cache_reclaim(const struct claim *claim, uint64_t bytes);
uint64_t cache_bytes_on_the_way(const struct claim *claim);
/* With what they still have. */
uint64_t cache_bytes_at_most(const struct claim *claim);
/* What has not gone yet is not given up. */
void cache_keep_all(struct node *node);

/* Bytes are taken without being waited for: caches give up what lacks for that, and for what they are to
 * leave. False: they have not so much. */
bool cache_make_room(const struct claim *claim, uint64_t bytes);

/* In the job's turn: empties what it gives up, and takes what there is. */
void cache_go_on(struct job *job);

/* All that has a slot waits for another: the job gets some back, if there are any. */
bool cache_rescue(struct job *job);

#endif
