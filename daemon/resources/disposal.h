/* A disposal gives memory and files back off the loop: unmapping, unpinning and unlinking can take seconds.
 */
#ifndef TIERD_DAEMON_DISPOSAL_H
#define TIERD_DAEMON_DISPOSAL_H

#include "daemon/resources/node.h"
#include "offload/device/memory.h"

struct store;

/* What is made for a job: a worker fills it in, the job gets it when all went well. */
struct made {
	struct memory arena, cache, sums, directory;
	struct store *parameter_store, *optimizer_store, *gradient_store;
	struct tier *draft[NODE_MAX_PATHS];
	bool uses_staging;
	uid_t uid;    /* in whose account its shared memory stays while clients withhold it */
	bool is_read; /* by processes that live: shared memory is left alone until they let go of it */
};

#define MADE_INIT                                                                                            \
	{                                                                                                    \
		MEMORY_INIT, MEMORY_INIT, MEMORY_INIT, MEMORY_INIT, NULL, NULL, NULL, { NULL }, false, 0,    \
			false                                                                                \
	}

/* They leave nothing behind in what they are given. On the one thread that also reserves: what comes later
 * finds the space free. */
void disposal_start(struct node *node, struct made *made);
void disposal_start_memory(struct node *node, struct memory *memory);
/* Of memory that clients may have; uid, is_read: as in struct made. Each piece that is withheld costs a
 * descriptor: of a user who has so many no more is left alone, whoever reads there. */
#define DISPOSAL_WITHHELD_MOST 256
void disposal_start_shared(struct node *node, uid_t uid, bool is_read, struct memory *memory);

/* What clients still have of shared memory that was disposed of, of a user's jobs and of others; it counts in
 * host_used. */
struct withheld {
	uint64_t bytes, others_bytes;
	unsigned count; /* of the user's memories */
	bool is_known;	/* false: not yet, of a job that ended just now; all jobs are settled when it is */
};
struct withheld disposal_withheld(const struct node *node, uid_t uid);
uint64_t disposal_withheld_by_all(const struct node *node);
/* When the node ends, and the loop does not run any more. */
void disposal_forget_all(struct node *node);

/* The heap of what has been freed, too: the C library would keep it, as large as the largest job ever was. */
void disposal_start_trim(struct node *node);

#endif
