/* Devices: on which of the node's paths the store of a job lies, in the order of its devices. A path that was
 * added later has none of it, and the order in which paths are configured says nothing. */
#ifndef TIERD_DAEMON_DEVICES_H
#define TIERD_DAEMON_DEVICES_H

#include "daemon/durability/job_list.h"
#include "daemon/durability/job_file.h"

/* By what its files say; those that say nothing get what is left, in the order of the paths. listed: what the
 * list of jobs says of it; NULL: nothing. Slow. -ENOENT: not all are there; -EEXIST: too many are, or they
 * are not of one store, or of another one than listed; -ESTALE: they are older than that; with a message. */
int devices_find(const struct node *node, const struct job_file *job, const struct job_list_store *listed,
		 struct path_list *ret_paths, char *message, size_t size);

#endif
