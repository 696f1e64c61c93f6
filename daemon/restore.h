/* Restore: jobs whose stores an earlier daemon has left come back, released and at their last durable step.
 */
#ifndef TIERD_DAEMON_RESTORE_H
#define TIERD_DAEMON_RESTORE_H

#include "daemon/job.h"
#include "daemon/stored.h"

/* All that lie on the node's paths; runs the loop until they are there, or lost: see daemon/lost.h. -ENOMEM.
 */
int restore_all(struct node *node);

/* Who wants to know when a job is there again. */
struct restore_notice {
	/* Once: the job, or NULL, and why not. */
	void (*done)(struct restore_notice *notice, const struct job *job, const char *why);
};

/* A job of which nothing is in flight any more, from its last durable step; the job is freed. job->notice is
 * told when it is back. */
void restore_again(struct job *job);

/* Files that nobody has open. */
void restore_file(struct node *node, const struct stored_job *file);

/* Whether a job of this name is on its way, or will be when another one has ended. */
bool restore_is_under_way(const struct node *node, uid_t uid, const char *name);

#endif
