/* Left: a job whose handle is to go while leases on it are held. The values under them become a private copy,
 * the daemon gets its memory back at once, and the last release frees the handle. */
#ifndef TIERD_CLIENT_LEFT_H
#define TIERD_CLIENT_LEFT_H

#include "client/library/pages/job.h"

/* Before the daemon is told: puts the copy under the leases. Other threads may read and release meanwhile.
 * Without memory for it the arena is closed: a fault is better than a wrong value. */
void left_keep(struct tierd_job *job);

/* After that, and without the node: false: no lease is held, and the handle is to be freed. */
bool left_begin(struct tierd_job *job);

/* As tierd_release_many and tierd_release_all of a job that was left. The handle may be gone afterwards. */
int left_release(struct tierd_job *job, const uint32_t *units, size_t count);
int left_release_all(struct tierd_job *job);

/* Locks the job's node. -EBADF: it has been left. */
int left_lock_node(struct tierd_job *job);
int left_fail(const struct tierd_job *job);

#endif
