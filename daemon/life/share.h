/* Share: whom a job is shared with, said after it was made. */
#ifndef TIERD_DAEMON_SHARE_H
#define TIERD_DAEMON_SHARE_H

#include "daemon/model/model.h"

/* It counts at once: who loses a right by that loses its ranks, readers, verifications and traces, too.
 * Answers when that is durable, as far as the job is. requesters: of the client, until then. */
void share_job(struct pending *pending, const Tierd__Wire__JobShare *request, struct queue *requesters);

/* Who opens the job need not know. */
void share_overlook(const struct job *job, struct job_options *asked);

/* What the job's record says is older than what was said of it since: that of a snapshot, or of another job.
 */
struct sharing {
	bool is_known, is_set;
	uint32_t sharing, group;
};
struct sharing share_of(const struct job *job);
void share_restore(struct job *job, const struct sharing *sharing);

#endif
