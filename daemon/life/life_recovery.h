/* What a job's life asks of the module above it that brings jobs back from their stores. */
#ifndef TIERD_DAEMON_LIFE_RECOVERY_H
#define TIERD_DAEMON_LIFE_RECOVERY_H

#include "daemon/durability/durability.h"

struct life_recovery {
	/* The job, of which nothing is in flight any more, comes back at its last durable step; it is freed.
	 */
	void (*bring_back)(struct job *job);
	/* A job that nobody has open comes back from its files; or is removed from them instead. */
	void (*bring_back_file)(struct node *node, const struct job_file *file);
	void (*remove_file)(struct node *node, const struct job_file *file);
	/* A job, or what was to become one, has let go of its files: others may have waited for that. */
	void (*go_on)(struct node *node);
	/* A job of this name is on its way back, or will be when another one has ended. */
	bool (*is_under_way)(const struct node *node, uid_t uid, const char *name);
	/* A job is on its way into or out of these files. */
	bool (*has_file)(const struct node *node, const char *file);
};

#endif
