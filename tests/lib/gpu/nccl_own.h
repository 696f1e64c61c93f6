/* What the files of the stand-in for NCCL share.
 *
 * One lock guards all of it. As NCCL without blocking does, a call only says what is to be done; it is done,
 * and is on the stream, when the member's state is no longer "in progress". That takes a second look here, so
 * that whoever relies on it earlier is wrong each time. */
#ifndef TIERD_TESTS_LIB_GPU_NCCL_OWN_H
#define TIERD_TESTS_LIB_GPU_NCCL_OWN_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

#include "common/queue.h"
#include "tests/lib/gpu/cuda_calls.h"
#include "tests/lib/gpu/nccl_calls.h"

#define CLIQUE_MAX 64

extern pthread_mutex_t nccl_lock;
extern pthread_cond_t nccl_changed;

/* The members of one id. */
struct clique {
	struct nccl_id id;
	int count, joined, finalized;
	bool is_member[CLIQUE_MAX];
	int devices[CLIQUE_MAX]; /* by member that is there */
	struct queue messages;	 /* sent, in the order of sending */
	unsigned holders;
	struct queue link;
};

struct ncclComm {
	struct clique *clique;
	int number;
	struct driver_context *context;
	struct launch *launch; /* not on the stream yet */
	unsigned looks;	       /* at its state, since it was given that */
	bool is_finalizing, is_aborted;
	struct queue registered; /* ranges of memory */
	unsigned holders;	 /* its owner, and each launch */
};

/* Returns the error, and keeps the text for ncclGetLastError(). */
int nccl_refuse(int error, const char *text);
/* With the lock held: DONE, IN_PROGRESS, or what has failed. */
int comm_state(struct ncclComm *comm);
void comm_release(struct ncclComm *comm);

/* Puts what a group has given a member on its stream. With the lock held. */
int launch_submit(struct ncclComm *comm);
/* It will not be put there. */
void launch_drop(struct ncclComm *comm);

#endif
