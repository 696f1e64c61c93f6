/* A disposal gives memory and files back off the loop: unmapping, unpinning and unlinking can take seconds.
 */
#ifndef TIERD_DAEMON_DISPOSAL_H
#define TIERD_DAEMON_DISPOSAL_H

#include "daemon/node.h"
#include "offload/memory.h"

struct store;

/* What is made for a job: a worker fills it in, the job gets it when all went well. */
struct made {
	struct memory arena, cache, sums, directory;
	struct store *parameter_store, *optimizer_store, *gradient_store;
	struct tier *draft[NODE_MAX_PATHS];
	bool uses_staging;
};

#define MADE_INIT                                                                                            \
	{                                                                                                    \
		MEMORY_INIT, MEMORY_INIT, MEMORY_INIT, MEMORY_INIT, NULL, NULL, NULL, { NULL }, false        \
	}

/* Both leave nothing behind in what they are given. On the one thread that also reserves: what comes later
 * finds the space free. */
void disposal_start(struct node *node, struct made *made);
void disposal_start_memory(struct node *node, struct memory *memory);

/* The heap of what has been freed, too: the C library would keep it, as large as the largest job ever was. */
void disposal_start_trim(struct node *node);

#endif
