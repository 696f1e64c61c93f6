/* NCCL, which moves GPU memory between ranks, looked for when the program runs: the calls of it that we use,
 * and its numbers, as its reference has them. */
#ifndef TIERD_COLLECTIVES_NCCL_NCCL_H
#define TIERD_COLLECTIVES_NCCL_NCCL_H

#include <limits.h>

#include "common/dynamic_library.h"

struct ncclComm; /* NCCL's own */

enum nccl_error {
	NCCL_DONE = 0,
	NCCL_CUDA_ERROR = 1,
	NCCL_SYSTEM_ERROR = 2,
	NCCL_INTERNAL_ERROR = 3,
	NCCL_INVALID_ARGUMENT = 4,
	NCCL_INVALID_USAGE = 5,
	NCCL_REMOTE_ERROR = 6,
	NCCL_IN_PROGRESS = 7,
};

/* The type of what is moved. NCCL sums nothing for us: docs/numerics.md has the reasons. */
#define NCCL_BYTE 1

/* By it the members of a communicator find one another. One of them makes it; how the others get it is left
 * to the caller. */
struct nccl_id {
	char bytes[128];
};

/* As of NCCL 2.19. Newer ones know by the version what it lacks. */
struct nccl_config {
	size_t size;
	unsigned magic, version;
	int is_blocking;
	int cluster_size, least_blocks, most_blocks;
	const char *network;
	int is_shared_by_split;
};

#define NCCL_CONFIG_MAGIC 0xcafebeef
#define NCCL_CONFIG_VERSION 21900
/* NCCL chooses. */
#define NCCL_UNDEFINED INT_MIN

/* A stream is the driver's CUstream. All calls return an error of NCCL's, but for the two texts. */
struct nccl {
	int (*version)(int *ret_version);
	const char *(*error_string)(int error);
	const char *(*last_error)(struct ncclComm *member);
	int (*make_id)(struct nccl_id *ret_id);
	int (*create)(struct ncclComm **ret_member, int count, struct nccl_id id, int number,
		      struct nccl_config *config);
	int (*state)(struct ncclComm *member, int *ret_error);
	int (*finalize)(struct ncclComm *member);
	int (*destroy)(struct ncclComm *member);
	int (*abort)(struct ncclComm *member);
	int (*enroll)(struct ncclComm *member, void *memory, size_t bytes, void **ret_handle);
	int (*withdraw)(struct ncclComm *member, void *handle);
	int (*group_start)(void);
	int (*group_end)(void);
	int (*all_gather)(const void *from, void *to, size_t count, int type, struct ncclComm *member,
			  void *stream);
	int (*broadcast)(const void *from, void *to, size_t count, int type, int root,
			 struct ncclComm *member, void *stream);
	int (*send)(const void *from, size_t count, int type, int peer, struct ncclComm *member,
		    void *stream);
	int (*receive)(void *to, size_t count, int type, int peer, struct ncclComm *member, void *stream);
};

/* False: the library says why not. */
bool nccl_open(struct nccl *ret_nccl, struct dynamic_library *library);

static inline bool nccl_has_failed(int error)
{
	return error != NCCL_DONE && error != NCCL_IN_PROGRESS;
}

/* An error of NCCL's as a negative errno. */
int nccl_errno(int error);
/* What who reads of that error can do. */
const char *nccl_remedy(int error);

#endif
