/* Restore: jobs whose stores an earlier daemon has left come back, released and at their last durable step;
 * and so do jobs that have to begin again from there in this one. A store has one job or several: a job and
 * its forks. */
#ifndef TIERD_DAEMON_RESTORE_H
#define TIERD_DAEMON_RESTORE_H

#include "daemon/model/model.h"
#include "daemon/durability/durability.h"

/* All that lie on the node's paths; runs the loop until they are there, or lost: see daemon/life/lost.h.
 * -ENOMEM.
 */
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

/* A fork is on its way: its name is taken from now on. file: its name and number, and its origin's files. It
 * ends with one of the next two; with the first one, when it is there. NULL: no memory. */
struct restore;
struct restore *restore_begin_fork(const struct job *origin, const struct job_file *file,
				   struct restore_notice *notice);
/* store: its own, which it takes over. */
void restore_end_fork(struct restore *restore, struct store *store);
void restore_cancel_fork(struct restore *restore);

/* A job, or what was to become one, has let go of its files: others may have waited for that. */
void restore_go_on(struct node *node);

/* Whether a job of this name is on its way, or will be when another one has ended. */
bool restore_is_under_way(const struct node *node, uid_t uid, const char *name);
/* The same, but not of one that is on its way out. With whom it is shared, as far as this daemon has known
 * it. */
bool restore_comes_back(const struct node *node, uid_t uid, const char *name, uint32_t *ret_sharing,
			uint32_t *ret_share_group);

#endif
