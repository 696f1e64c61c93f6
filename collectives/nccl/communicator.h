/* A communicator combines GPU memory of a job's ranks in one epoch: all-gather, broadcast, reduce-scatter and
 * all-reduce.
 *
 * Members. NCCL refuses two members on one GPU, so its members are the job's GPUs, not its ranks: ranks that
 * share a GPU are one member, and what stays on a GPU is copied and summed there by functions of the owner. A
 * rank without a GPU belongs to the member that has a copy of its memory. All members of this process are
 * driven by one thread, which issues an operation for all of them as one group: so two communicators cannot
 * wait for each other on the same GPUs, and no kernel of NCCL spins while it waits for a rank of this node.
 * Members of other nodes need the same id and options there, and nothing else.
 *
 * Order. The job's first rank announces operations, numbered from 0 on. Each rank asks for them by their
 * numbers, in any order, before or after they were announced. An operation is put on the streams when all
 * ranks of this process have asked for it and all before it are there.
 *
 * Bits. Sums are those of docs/numerics.md. NCCL moves bytes and adds nothing.
 *
 * Threads. One thread makes all calls; of the callbacks done() alone may call, too, but not poll or free.
 * NCCL may keep it for milliseconds, and in an abort until its kernels have ended, so this is no loop that
 * serves others. Callbacks run on it, in communicator_poll(). */
#ifndef TIERD_COLLECTIVES_NCCL_COMMUNICATOR_H
#define TIERD_COLLECTIVES_NCCL_COMMUNICATOR_H

#include "collectives/nccl/nccl.h"
#include "collectives/reduce.h"
#include "common/cleanup.h"

struct communicator;

/* Operations that are announced or asked for, and not done. */
#define COMMUNICATOR_QUEUE 64
/* Ranges of memory of a member that are registered. */
#define COMMUNICATOR_RANGES 32

enum communicator_state {
	COMMUNICATOR_CREATING, /* members find one another */
	COMMUNICATOR_READY,
	COMMUNICATOR_CLOSING, /* members take leave of one another */
	COMMUNICATOR_CLOSED,
	COMMUNICATOR_ABORTING, /* NCCL has let go; operations are done when the GPUs are past them */
	COMMUNICATOR_ABORTED,  /* by its owner, or because something failed */
	COMMUNICATOR_STATES
};

enum communicator_kind {
	COMMUNICATOR_ALL_GATHER,     /* each rank's piece of an array, to all */
	COMMUNICATOR_BROADCAST,	     /* the root's array, to all */
	COMMUNICATOR_REDUCE_SCATTER, /* the sum of the ranks' contributions; each rank gets its piece */
	COMMUNICATOR_ALL_REDUCE,     /* the whole sum, to all */
	COMMUNICATOR_KINDS
};

/* A sum in a GPU's memory: sum = tree(contributions), or sum + tree(contributions), as a reduce_kernel has
 * it. Borrowed for the call. */
struct communicator_sum {
	enum reduce_format format;
	float *sum;
	bool is_added;
	const void *const *contributions; /* by rank; NULL: absent */
	unsigned rank_count;
	size_t count;
};

/* What the owner of the GPUs does: kernels and events of its own. They are on the stream when the function
 * returns, because what follows them there a thread of NCCL's puts there. Each returns 0 or a negative errno.
 */
struct communicator_gpu_ops {
	/* The GPU's context is the calling thread's from now on. */
	int (*use)(void *owner, int gpu);
	int (*copy)(void *owner, int gpu, void *stream, void *to, const void *from, size_t bytes);
	int (*sum)(void *owner, int gpu, void *stream, const struct communicator_sum *sum);
	/* A mark behind all that is on the stream now. */
	int (*mark)(void *owner, int gpu, void *stream, uint64_t *ret_mark);
	/* 1: the GPU is past the mark; 0: not yet; negative: it does not answer any more. */
	int (*is_past)(void *owner, int gpu, uint64_t mark);
};

/* A GPU of this process. */
struct communicator_member {
	int gpu;       /* as the owner counts */
	void *stream;  /* its operations' own */
	void *staging; /* staging_bytes of its memory, for contributions of others; or NULL */
};

struct communicator_options {
	const char *job; /* for texts */
	uint64_t epoch;
	const struct nccl *nccl; /* borrowed; NULL: of one member, which needs no other */
	struct nccl_id id;
	unsigned rank_count, member_count;
	const unsigned *member_of_rank; /* by rank */
	unsigned first_member, local_count;
	const struct communicator_member *members; /* those of this process, from first_member on */
	size_t staging_bytes;			   /* the same everywhere; 0: none, and no sums */
	uint64_t creation_timeout_ns;		   /* its closing's, too */
	/* From the moment at which an operation is put on the streams, or the one before it is done, until it
	 * is done: what its stream waits for counts. */
	uint64_t operation_timeout_ns;
	const struct communicator_gpu_ops *ops; /* borrowed, as the owner is */
	void *owner;
};

/* As the job's first rank announces it; the same everywhere. */
struct communicator_operation {
	uint64_t sequence;
	enum communicator_kind kind;
	const char *name; /* what is combined, for texts */
	/* rank_count + 1 numbers that never fall: rank r's piece is the elements bounds[r] … bounds[r + 1] -
	 * 1. Elements are bytes, and of a sum those of its contributions. Of a broadcast only the last
	 * counts.
	 */
	const uint64_t *bounds;
	enum reduce_format format; /* of a sum's contributions */
	unsigned root;		   /* of a broadcast */
	const bool *is_absent;	   /* by rank: contributes nothing to a sum, not all of them; NULL: none */
	/* Of a reduce-scatter: of each piece only so many elements from that one on are summed, as far as
	 * the piece has them, and a rank gets these alone. 0: the whole pieces. */
	uint64_t window_first, window_count;
};

/* What one rank asks for. The caller owns it, and leaves it and its memory alone until done() runs, once. */
struct communicator_request {
	uint64_t sequence;
	enum communicator_kind kind;
	unsigned rank;
	uint64_t count; /* elements of the whole array */
	/* Of an all-gather and a broadcast: the whole array, in which the rank's piece, or the root's all, is
	 * already. Ranks of one GPU may have the same. */
	void *array;
	const void *contribution; /* of a sum: the whole array, unless the rank is absent */
	float *sum;		  /* of a reduce-scatter: the rank's piece of it, or the window's part */
	bool is_added;		  /* else the sum is overwritten; of an all-reduce all ranks' are equal */
	/* NULL, or called before the first and after the last of the operation is on the stream: the owner
	 * has the stream wait for what makes the memory ready, and others for the stream. 0, or a negative
	 * errno, which aborts. */
	int (*before)(struct communicator_request *request, void *stream);
	int (*after)(struct communicator_request *request, void *stream);
	void (*done)(struct communicator_request *request, int status); /* 0 or a negative errno */
	void *owner;							/* the caller's */
};

/* Numbers the GPUs of ranks as members, in the order of their first ranks, and returns how many these are. */
unsigned communicator_map(const unsigned *gpu_of_rank, unsigned rank_count, unsigned *ret_member_of_rank);

/* For one of the nodes, which tells the others. Else a negative errno, and the problem says why. */
int communicator_make_id(const struct nccl *nccl, struct nccl_id *ret_id, char *problem, size_t size);

/* Has NCCL create the members, without waiting for the others. -ENOMEM, -EINVAL (the staging memory is too
 * small). What NCCL refuses, poll finds. */
int communicator_new(const struct communicator_options *options, uint64_t now_ns,
		     struct communicator **ret_communicator);
/* It must be closed or aborted. */
struct communicator *communicator_free(struct communicator *communicator);
DEFINE_FREEP(struct communicator *, communicator_free)

enum communicator_state communicator_state(const struct communicator *communicator);
/* Why it was aborted, or refused something last: names the call, the operation, the GPUs, and the remedy. */
const char *communicator_problem(const struct communicator *communicator);

/* Both are also taken before it is ready. The operation is copied; its arrays and its name are lent until
 * the last request of this process is done with it, or the communicator is aborted. -ESTALE: that one is
 * over; -EEXIST: it was announced, or asked for by this rank, before; -ENOBUFS: too far ahead of what is
 * done; -EPROTO: what was announced is not what a rank asks for; -ECANCELED: it is closed or aborted. After
 * an error done() does not run. */
int communicator_announce(struct communicator *communicator, const struct communicator_operation *operation);
int communicator_ask(struct communicator *communicator, struct communicator_request *request);

/* Has NCCL know memory of a member (by its place among the local ones) until the end, so that it moves it
 * without copies of its own. It must be ready. -ENOBUFS, or what NCCL says: all works without it as well. */
int communicator_register(struct communicator *communicator, unsigned local, void *memory, size_t bytes);

/* Goes on with all that can go on, and calls what is done: to be called after asking, too. Returns in how
 * many nanoseconds it should be called again at the latest; UINT64_MAX: it is closed or aborted. */
uint64_t communicator_poll(struct communicator *communicator, uint64_t now_ns);

/* The members take leave of one another: all of them must do it. -EBUSY: something is announced or asked for,
 * or it is not ready. */
int communicator_close(struct communicator *communicator, uint64_t now_ns);
/* Whatever it is doing. What was asked for is done with -ECANCELED, when the GPUs do not use it any more, as
 * is what they may have finished. */
void communicator_abort(struct communicator *communicator, const char *reason);

#endif
