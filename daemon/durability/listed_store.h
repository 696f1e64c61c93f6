/* Listed store: what the list of jobs says of a store, compared with what is found of it on the paths. */
#ifndef TIERD_DAEMON_LISTED_STORE_H
#define TIERD_DAEMON_LISTED_STORE_H

#include "daemon/durability/job_list.h"
#include "offload/store/store_device.h"

/* is_found: by the node's paths, which have a file of it. Slow; on any thread. 0: it has a file on each path
 * that the list names; -ENOENT with a message: which path lacks one, why, and what to do. */
int listed_store_check_paths(const struct node *node, const struct job_list_store *listed, uint32_t is_found,
			     char *message, size_t size);

/* found: the newest of its files. -EEXIST: it is another store; -ESTALE: an older copy; with a message. */
int listed_store_check(const struct job_list_store *listed, const char *folder,
		       const struct store_device *found, char *message, size_t size);

#endif
