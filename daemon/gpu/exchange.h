/* What a job's GPUs exchange in an epoch: packs that all of them want next, of which each copies its part
 * from host memory, and gets the rest of the others (collectives/nccl). And sums of what the job's ranks push
 * from there (scatter.c).
 *
 * It is made when the order of gathers is known and the job has tiers on several GPUs, and ends with the
 * epoch, or where a tier comes or goes; then there may be another. While there is none, or it has failed,
 * each GPU copies all by itself. */
#ifndef TIERD_DAEMON_GPU_EXCHANGE_H
#define TIERD_DAEMON_GPU_EXCHANGE_H

#include "common/transition.h"
#include "daemon/gpu/exchange_thread.h"
#include "daemon/gpu/own.h"

enum exchange_state {
	EXCHANGE_NONE,
	EXCHANGE_CREATING,
	EXCHANGE_READY,
	EXCHANGE_BROKEN, /* what fails, fails until it ends */
	EXCHANGE_ENDING, /* the thread still has it */
};
#define EXCHANGE_STATES (EXCHANGE_ENDING + 1)

enum exchange_event {
	EXCHANGE_BEGIN, /* several GPUs want the same */
	EXCHANGE_MADE,
	EXCHANGE_FAIL,
	EXCHANGE_END, /* the epoch is over, or its GPUs are others */
	EXCHANGE_ENDED,
};
#define EXCHANGE_EVENTS (EXCHANGE_ENDED + 1)

extern const struct transition_table exchange_table;

/* So many packs are on their way together. */
#define GPU_SHARES 8

/* A pack on its way to all GPUs of an exchange. */
struct gpu_share {
	struct gpu_exchange *exchange;
	enum gpu_way way;
	bool is_broken;	  /* each goes on by itself */
	bool is_moving;	  /* all parts are there, and the operation is under way */
	unsigned packs;	  /* that are in it; 0: it is free */
	unsigned missing; /* parts, or, by the plain way, packs, that are not there */
	uint64_t begun_ns, bytes;
	struct gpu_pack *pack[GPUS_MAX]; /* by member; NULL: not in it any more */
	bool is_there[GPUS_MAX];	 /* its part */
	struct exchange_operation operation;
	uint64_t *bounds; /* by rank */
};

/* A sum that the GPUs of an exchange make (scatter.c). */
struct gpu_scatter {
	struct gpu_sum sum;
	struct queue link; /* of the exchange's, while some of it has not begun */
	/* What begins next: of that segment, which has so many elements before it in the unit, in each rank's
	 * piece the elements from that one on. */
	unsigned segment;
	uint64_t before, first;
	unsigned rounds; /* under way */
	int status;
};

enum gpu_round_state {
	ROUND_FREE,
	ROUND_EXCHANGING, /* the thread has it */
	ROUND_COPYING,	  /* its pieces are on their way to host memory */
};

/* Some of a sum: of each rank's piece of a segment as much as its GPU has memory for. */
struct gpu_round {
	struct gpu_exchange *exchange;
	struct gpu_scatter *scatter; /* NULL: its sum does not wait for it any more */
	enum gpu_round_state state;
	struct exchange_operation operation;
	struct communicator_request requests[GPU_RANKS]; /* these by rank */
	uint64_t bounds[GPU_RANKS + 1];
	bool is_absent[GPU_RANKS];
	struct gpu_rank *ranks[GPU_RANKS]; /* whose contributions the GPUs may read; NULL: none */
	struct gpu_round_piece {
		struct gpu_copy copy;
		struct gpu_round *round;
		struct gpu_rank *rank;
		bool is_under_way, is_given_up;
	} pieces[GPU_RANKS];
	unsigned moving;  /* pieces under way */
	unsigned awaited; /* and those that the sum waits for */
	int status;
};

/* A rank's gradients on its GPU, which NCCL knows until the exchange ends. */
struct gpu_lent {
	struct gpu_rank *rank; /* NULL: it does not know them */
	struct exchange_range range;
};

struct gpu_exchange {
	struct job *job;
	enum exchange_state state;
	uint32_t epoch;
	unsigned count;
	struct gpu_tier *tiers[GPUS_MAX]; /* by member */
	unsigned *member_of_rank;
	struct exchange_group group;
	struct gpu_choice choice;
	struct gpu_share shares[GPU_SHARES];
	struct gpu_lent lent[GPU_RANKS]; /* by rank */
	struct gpu_scatter scatters[GPU_SUMS];
	struct queue scattering; /* those that wait for a round */
	struct gpu_round rounds[GPU_ROUNDS];
	uint64_t window; /* elements of a rank's piece that a round takes; 0: they sum nothing together */
	bool has_failed_sum;
	/* No sum waits any longer for the tier's driver, which hangs, and whose ranks have been sent away; or
	 * for the thread, if there is no tier: it does not come back from NCCL. NULL: there was no sum. */
	void (*give_up_sums)(struct gpu_exchange *exchange, const struct gpu_tier *tier);
	/* It has ended: NCCL does not know the ranks' gradients any more. NULL: likewise. */
	void (*give_back)(struct gpu_exchange *exchange);
	uint64_t bytes;	   /* of packs that GPUs have got from one another */
	char problem[768]; /* that was told last, since one was ready; "" */
};

/* In the job's turn: it begins, or ends, if it is time. */
void gpu_exchange_serve(struct job *job);
/* The tier is in the hands of the thread. */
bool gpu_exchange_has(const struct gpu_tier *tier);
/* Where the thread does not come back from NCCL exchanges fail, and so do tiers that it has a copy to. */
typedef void (*gpu_exchange_fail)(struct gpu_tier *tier, int status, const char *problem);
void gpu_exchange_check(struct node *node, gpu_exchange_fail fail);
/* It is at one thing for longer. */
bool gpu_exchange_hangs(const struct node *node, uint64_t patience_ns);
void gpu_exchange_free(struct job *job);
void gpu_exchange_node_free(struct node *node);

/* It is ready, in the job's epoch. */
bool gpu_exchange_is_ready(const struct gpu_exchange *exchange);

/* ---- scatter.c ---- */

/* As gpu_can_sum() and gpu_sum_begin() are, of a job with ranks on several GPUs. */
bool gpu_scatter_can(const struct job *job);
void gpu_scatter_begin(const struct gpu_sum_order *order);

/* ---- share.c ---- */

/* Begins with what all of its GPUs expect next. */
void gpu_share_prefetch(struct job *job);
/* In the job's turn: where the exchange has failed or ends, GPUs wait for one another no longer. */
void gpu_share_look(struct job *job);
/* Whether a prefetch is left to that. */
bool gpu_share_will_bring(const struct gpu_pack *pack, uint32_t ahead);

/* What a GPU copies of the pack by itself. */
struct gpu_part {
	size_t offset, bytes;
	bool is_all;
};
struct gpu_part gpu_share_part(struct gpu_pack *pack);
/* What it copies is there. False: that is all of the pack. */
bool gpu_share_arrive(struct gpu_pack *pack);
/* Somebody waits for the pack, or it does not come: the GPUs wait for one another no longer. */
void gpu_share_break(struct gpu_pack *pack);
/* The pack has come, or not. */
void gpu_share_leave(struct gpu_pack *pack);

#endif
