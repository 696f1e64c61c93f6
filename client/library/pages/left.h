/* A left job is one that the user has closed while leases on it are held. The leased values become a private
 * copy, the daemon gets its memory back at once, and the last release frees the handle. Of values in a GPU's
 * memory there is no copy: they stay mapped, and may change. */
#ifndef TIERD_CLIENT_LEFT_H
#define TIERD_CLIENT_LEFT_H

#include "client/library/pages/job.h"

/* Replaces the arena by the private copy; called before the daemon is told. Other threads may read and
 * release meanwhile. If there is no memory for the copy, the arena is made inaccessible: a fault is better
 * than a wrong value. */
void left_keep(struct tierd_job *job);

/* Called after that: from then on the job has no node. False: no lease is held, and the caller frees the
 * handle. */
bool left_begin(struct tierd_job *job);

/* tierd_release_many and tierd_release_all of a job that was left. They may free the handle. */
int left_release(struct tierd_job *job, const uint32_t *units, size_t count);
int left_release_all(struct tierd_job *job);
/* And tierd_release_on. */
int left_release_on(struct tierd_job *job, uint32_t unit, struct driver_stream *stream);

/* Locks the job's node. -EBADF: it has been left. */
int left_lock_node(struct tierd_job *job);
int left_fail(const struct tierd_job *job);

#endif
