/* Restore: a job comes back from its store, released and at its last durable step. An earlier daemon has left
 * it, or it has to begin again in this one. A store has one job or several: a job and its forks. */
#ifndef TIERD_DAEMON_RESTORE_H
#define TIERD_DAEMON_RESTORE_H

#include "daemon/model/model.h"
#include "daemon/durability/durability.h"

/* Brings back all jobs that lie on the node's paths. Runs the loop until they are there, or lost
 * (daemon/life/lost.h). -ENOMEM. */
int restore_all(struct node *node);

/* Who wants to know when a job is there again. */
struct restore_notice {
	struct queue link; /* of the node's, until the job has ended */
	const struct job *job;
	/* Once: the job, or NULL, and why not. */
	void (*done)(struct restore_notice *notice, const struct job *job, const char *why);
};

/* A job that is to end, and comes back then; notice: lent until done(). */
void restore_await(const struct job *job, struct restore_notice *notice);

/* A job that nobody has open: it is removed from its store instead of coming back. */
void restore_and_end(struct node *node, const struct job_file *file);

/* Files of jobs have been closed: restores may have waited for that. */
void restore_go_on(struct node *node);

/* Whether a job of this name is on its way, or will be when another one has ended. */
bool restore_is_under_way(const struct node *node, uid_t uid, const char *name);
/* The same, without jobs that are being removed. ret_sharing, ret_share_group: with whom the job is shared,
 * as far as this daemon knows. */
bool restore_comes_back(const struct node *node, uid_t uid, const char *name, uint32_t *ret_sharing,
			uint32_t *ret_share_group);

#endif
