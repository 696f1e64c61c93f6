/* A disposal gives memory and files back off the loop: unmapping, unpinning and unlinking can take seconds.
 * What a GPU has registered that is lost, or does not let go of it, stays until that GPU is closed, and
 * counts in host_used. */
#ifndef TIERD_DAEMON_DISPOSAL_H
#define TIERD_DAEMON_DISPOSAL_H

#include "daemon/resources/node.h"
#include "offload/device/memory.h"

struct store;

/* What is made for a job. A worker fills it in; the job gets it if all went well. */
struct made {
	struct memory arena, cache, sums, directory;
	struct store *parameter_store, *optimizer_store, *gradient_store;
	struct tier *draft[NODE_MAX_PATHS];
	bool uses_staging;
	uid_t uid;    /* who is charged for shared memory that clients withhold */
	bool is_read; /* living processes may read it: it is left alone until they let go of it */
};

#define MADE_INIT                                                                                            \
	{                                                                                                    \
		MEMORY_INIT, MEMORY_INIT, MEMORY_INIT, MEMORY_INIT, NULL, NULL, NULL, { NULL }, false, 0,    \
			false                                                                                \
	}

/* These take over what they are given. One thread disposes and reserves, so what is reserved later finds the
 * space free. */
void disposal_start(struct node *node, struct made *made);
void disposal_start_memory(struct node *node, struct memory *memory);
/* Of memory that clients may have; uid, is_read: as in struct made. Each withheld memory costs a descriptor.
 * If a user has so many, further ones are taken back, whoever reads there. */
#define DISPOSAL_WITHHELD_MOST 256
void disposal_start_shared(struct node *node, uid_t uid, bool is_read, struct memory *memory);

/* What clients still have of shared memory that was disposed of. It counts in host_used. */
struct withheld {
	uint64_t bytes, others_bytes;
	unsigned count; /* of the user's memories */
	bool is_known;	/* false: not yet, of a job that ended just now; all jobs are settled when it is */
};
struct withheld disposal_withheld(const struct node *node, uid_t uid);
uint64_t disposal_withheld_by_all(const struct node *node);
/* The node ends, and its loop runs no more. */
void disposal_forget_all(struct node *node);

/* Gives freed heap memory back: the C library would keep as much as the largest job ever had. */
void disposal_start_trim(struct node *node);

#endif
