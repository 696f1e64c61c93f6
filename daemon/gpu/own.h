/* What the GPU module keeps of a node, a job and a member; for its own files. */
#ifndef TIERD_DAEMON_GPU_OWN_H
#define TIERD_DAEMON_GPU_OWN_H

#include "collectives/collective.h"
#include "collectives/cuda/sum.h"
#include "common/workers.h"
#include "daemon/gpu/gpu.h"
#include "daemon/gpu/gradients_state.h"
#include "daemon/gpu/mirrors.h"
#include "daemon/gpu/state.h"
#include "daemon/gpu/updates.h"
#include "daemon/residency/residency.h"
#include "daemon/resources/resources.h"
#include "offload/cuda/gpu_engine.h"
#include "proto/gpu_pages.h"

#define GPU_PROBLEM_TEXT 640

/* ---- node.c: the GPUs of the node ---- */

/* A worker that calls a library, which may take long, and for ever: nobody else waits behind it. */
struct gpu_helper {
	struct workers *workers;
	struct event *event;
	/* What it is at, of which GPU, or of none (-1), and since when; 0: nothing. */
	_Atomic uint64_t since_ns;
	const char *_Atomic what;
	_Atomic int gpu;
};

/* A GPU that somebody uses. A worker opens and closes it, since the driver takes its time. */
struct gpu_in_use {
	struct node *node;
	struct gpu_helper helper;
	unsigned number; /* its place in the node's gpus */
	struct gpu_engine *engine;
	struct event *event;
	unsigned tiers;
	bool is_lost;
	bool is_closing;	/* a worker closes it, or will */
	bool has_failed_update; /* it makes no more, for nobody */
	bool has_failed_sum;	/* likewise */
	struct gpu_sensors sensors;
	char problem[GPU_PROBLEM_TEXT];
};

struct node_gpu {
	struct gpu_helper nvml, finder; /* of GPUs */
	struct event *check;
	struct gpus gpus;
	bool has_looked;
	struct gpu_sensing *sensing;
	struct gpu_exchanges *exchanges; /* NULL: no job has had one */
	struct gpu_in_use in_use[GPUS_MAX];
};

/* The GPU is there, with an engine, or a negative errno and the problem. On workers: of the node, which finds
 * it, and of the GPU. */
struct gpu_opening {
	struct work work;
	struct gpu_tier *tier;
	uint8_t uuid[GPU_UUID_BYTES];
	int status;
	struct gpu_in_use *gpu;
	char problem[GPU_PROBLEM_TEXT];
};

int gpu_node_new(struct node *node);
/* opened() of the tier follows: tier.c. */
void gpu_open(struct gpu_opening *opening);
/* The job is gone when the GPU is closed, if that follows. */
void gpu_let_go(struct gpu_in_use *gpu, struct job *job);
/* Those whose driver hangs are lost, and not opened. */
void gpu_check_engines(struct node *node);

/* ---- helper.c ---- */

/* With the first that needs it: who asks for GPUs that are not there costs nothing. */
int gpu_helper_start(struct gpu_helper *helper, struct node *node, const char *name);
/* Waits for what it does. */
void gpu_helper_stop(struct gpu_helper *helper);
/* On the worker: what it is at from now on. */
void gpu_helper_begin(struct gpu_helper *helper, const char *what, int gpu);
void gpu_helper_end(struct gpu_helper *helper);
/* It has been at one thing for longer. */
bool gpu_helper_hangs(const struct gpu_helper *helper, uint64_t patience_ns, struct gpu_problem *ret_problem);

/* ---- sensing.c ---- */

struct gpu_sensing *gpu_sensing_new(struct node *node); /* NULL: out of memory */
/* No worker is at it. NVML, if it is open, goes with the process: its end could take for ever. */
struct gpu_sensing *gpu_sensing_free(struct gpu_sensing *sensing);
/* The GPU is in use from now on: it is looked at, and then again and again. */
void gpu_sensing_begin(struct gpu_sensing *sensing, struct gpu_in_use *gpu);
void gpu_sensing_lose(struct gpu_in_use *gpu);
/* Now, if no worker is at it. */
void gpu_sensing_look(struct gpu_sensing *sensing);
bool gpu_sensing_is_quiet(const struct gpu_sensing *sensing);

/* ---- A tier ---- */

/* Where a rank pushes from: memory of its own on the GPU, as large as its gradient buffers in host memory. */
struct gpu_gradients {
	enum gpu_gradients_state state;
	uint64_t bytes; /* of those buffers, as the budget counts them */
	struct gpu_memory memory;
	struct gpu_pin pin; /* of those buffers */
	struct queue asking;
	bool is_refused; /* by the GPU: it waits until memory of another rank has come back */
	struct gpu_push {
		struct gpu_copy copy;
		struct gpu_rank *rank;
		gpu_pushed done;
	} * pushes; /* by buffer */
	unsigned moving;
};

/* What its process had queued on the GPU when the rank left goes on. */
enum gpu_draining {
	GPU_STAYS,	  /* it has not left, or nobody would tell of its process */
	GPU_MAY_DIE,	  /* it left a moment ago: no event covers all of it, if it dies */
	GPU_AWAITS_EVENT, /* its last one */
	GPU_HAS_DIED,	  /* while that was waited for, which is cancelled */
	GPU_HAS_DRAINED,
};

/* A rank's part of a tier. */
struct gpu_rank {
	struct gpu_tier *tier;
	struct member *member; /* NULL: it is gone */
	unsigned place;	       /* in the tier's ranks */
	struct memory page;
	struct gpu_lease_header *leases;
	struct gpu_rank_event {
		struct gpu_event event;
		struct gpu_rank *rank;
	} events[GPU_EVENTS];
	unsigned busy; /* requests in flight with them */
	enum gpu_draining draining;
	struct gpu_copy last;	/* of nothing: a wait for its last event */
	struct event *death;	/* of its process, meanwhile */
	bool is_open;		/* they are, or were */
	struct queue attaching; /* its attach that waits */
	struct gpu_gradients gradients;
	int status;
	char problem[GPU_PROBLEM_TEXT];
};

/* A place of one pack. */
struct gpu_slot {
	struct gpu_tier *tier;
	struct gpu_event event; /* behind the last copy into it */
	/* By rank: its events that the next copy into it is behind, a bit for each. */
	uint32_t behind[GPU_RANKS];
};

struct gpu_pack {
	enum gpu_state state;
	uint32_t slot;
	uint64_t version; /* of what is in its slot, or on its way there */
	uint64_t used;	  /* the tier's clock at its last use */
	enum tier_priority priority;
	struct queue waiters; /* of pendings */
	struct queue link;    /* of the tier's queue */
	struct queue renewal; /* of the tier's, while it is resident and may have waiters */
	struct waiter host;   /* for its values in host memory */
	struct gpu_copy copy;
	uint64_t began_ns;	  /* as trace_now() said */
	struct gpu_rank *awaited; /* whose event the copy is behind */
	bool is_held;		  /* the copy is submitted by gpu_packs_resume() */
	bool is_pinned;		  /* in host memory */
	struct gpu_share *share;  /* exchange.h; NULL: it comes by itself */
	struct gpu_tier *tier;
};

/* A segment of the job's cache, as this GPU has it registered. */
enum gpu_segment_state {
	GPU_SEGMENT_OUT,
	GPU_SEGMENT_COMING,
	GPU_SEGMENT_UNWANTED, /* coming, and leaves again then */
	GPU_SEGMENT_IN,
	GPU_SEGMENT_GOING,
};

struct gpu_segment {
	struct gpu_tier *tier;
	enum gpu_segment_state state;
	struct gpu_pin pin;
};

/* What goes through a tier's GPU in chunks. */
struct gpu_passes {
	struct gpu_tier *tier;
	void (*came)(struct gpu_tier *tier); /* a request of its opening, or of its end, has */
	struct driver_function *update_functions[KERNELS_COUNT], *sum_functions[REDUCE_FORMATS];
	struct gpu_kernels update_kernels, sum_kernels;
	struct gpu_memory memory;
	struct gpu_memory pieces;    /* for sums with other GPUs (scatter.c); no address: none */
	struct gpu_updater *updater; /* NULL: it takes none */
	int status;
	struct gpu_problem problem;
};

/* Contributions of ranks being summed. */
struct gpu_sum {
	struct job *job;
	bool is_running;
	gpu_summed done; /* NULL: who waited has been told */
	void *context;
	const char *name; /* of the unit */
	struct collective_segment segments[UNIT_TRAINABLE_SECTIONS];
	unsigned segment_count, rank_count;
	struct gpu_summand {
		struct gpu_rank *rank; /* NULL: it contributes nothing */
		uint64_t first;	       /* byte of its gradient buffers */
	} summands[GPU_RANKS];
	uint64_t share;	   /* elements that take the place of a contribution */
	uint64_t elements; /* of all segments */
};

/* By one GPU: one pass after the other, each of elements in one format whose sums lie side by side in host
 * memory. */
struct gpu_pass_sum {
	struct gpu_sum sum;
	struct gpu_pass pass;
	struct gpu_tier *tier;
	uint64_t summed; /* elements */
	/* Of the pass. */
	const struct collective_segment *segment;
	uint64_t skip; /* elements of it */
	char *to;
};

enum gpu_tier_state {
	GPU_TIER_OPENING, /* its GPU, its memory, its events */
	GPU_TIER_OPEN,
	GPU_TIER_FAILED, /* the problem says why */
	GPU_TIER_ENDING,
	GPU_TIER_GONE,
};

struct gpu_tier {
	struct queue link; /* of the job's */
	struct job *job;
	enum gpu_tier_state state;
	uint64_t budget;
	bool has_gradients; /* the budget is for them, too */
	struct gpu_in_use *gpu;
	struct gpu_opening opening;
	struct gpu_memory memory; /* while that is asked for, the engine's thread writes to it */
	bool has_memory;
	struct gpu_pin pin;  /* of what is reserved of the arena */
	bool is_pin_put_off; /* until all its pages are there: a driver makes small ones of those that lack */
	struct gpu_segment *segments;
	uint32_t segment_count;
	void (*came)(struct gpu_tier *tier); /* a request for one of them has come home */
	bool has_told_pin;		     /* that one was refused */
	struct memory directory_memory;
	struct directory_header *directory;
	float update_fraction;
	bool has_room_for_passes;    /* its budget has */
	bool has_room_for_pieces;    /* likewise */
	struct gpu_passes *passes;   /* NULL: there are none */
	struct gpu_updates *updates; /* NULL: it makes none */
	uint64_t mirror_room;	     /* bytes that its budget leaves for mirrors */
	struct gpu_mirrors *mirrors; /* NULL: there are none */
	bool may_sum;		     /* as the node's settings said */
	struct gpu_pass_sum *sums;   /* GPU_SUMS of them; NULL: it sums nothing */
	struct slots slots;
	struct gpu_slot *places; /* by slot */
	struct gpu_pack *packs;
	struct gpu_rank *ranks[GPU_RANKS];
	struct queue slot_queue; /* packs that wait for a slot */
	struct queue renewals;	 /* packs whose waiters want newer values than are in use */
	uint64_t clock;
	uint64_t moving_bytes;
	uint64_t energy_seen; /* by its GPU's counter, at the last look */
	unsigned outstanding; /* requests in flight, of all kinds */
	int status;
	char problem[GPU_PROBLEM_TEXT];
};

struct job_gpu {
	struct queue tiers;
	unsigned closing;	       /* GPUs that it was the last one on */
	struct gpu_exchange *exchange; /* exchange.h; NULL: it has had none */
	struct gpu_energy energy;
	uint64_t step_seen; /* at the last look */
	struct gpu_updates_figures updated;
	uint64_t summed_bytes;
};

static inline bool gpu_rank_is_draining(const struct gpu_rank *rank)
{
	return rank->draining == GPU_MAY_DIE || rank->draining == GPU_AWAITS_EVENT;
}

static inline uint32_t gpu_pack_number(const struct gpu_pack *pack)
{
	return (uint32_t)(pack - pack->tier->packs);
}

static inline bool gpu_tier_has_ranks(const struct gpu_tier *tier)
{
	for (unsigned i = 0; i < GPU_RANKS; i++)
		if (tier->ranks[i])
			return true;
	return false;
}

static inline bool gpu_tier_is_whole(const struct gpu_tier *tier)
{
	return tier->slots.count == tier->job->catalog.pack_count;
}

/* ---- tier.c ---- */

/* What its slots take of the budget. */
uint64_t gpu_tier_bytes(const struct gpu_tier *tier);

/* In the job's turn. */
void gpu_tier_go_on(struct gpu_tier *tier);

/* The job's tier on that GPU; it is made if need be. NULL: out of memory. */
struct gpu_tier *gpu_tier_find(struct job *job, const Tierd__Wire__GpuAttach *attach);
void gpu_tier_opened(struct gpu_tier *tier);
/* True: it has no ranks any more, and comes to its end. In the job's turn: it may be freed. */
bool gpu_tier_ends(struct gpu_tier *tier);
/* Its GPU does nothing for it any more: who waits is told, and what is in flight comes home. */
void gpu_tier_fail(struct gpu_tier *tier, int status, const char *problem);

/* ---- passes.c: what goes through a GPU in chunks ---- */

/* Of the GPU, for chunks on their way; and what they take of the budget, or really have. */
#define GPU_PASSES_BYTES ((size_t)6 << 20)
uint64_t gpu_passes_bytes(const struct gpu_tier *tier);
/* And for sums with other GPUs: a communicator's staging memory, and what rounds of sums have on its way to
 * host memory. */
#define GPU_STAGING_BYTES ((size_t)8 << 20)
#define GPU_ROUND_BYTES ((size_t)4 << 20)
#define GPU_ROUNDS 2
#define GPU_PIECES_BYTES (GPU_STAGING_BYTES + GPU_ROUNDS * GPU_ROUND_BYTES)
uint64_t gpu_pieces_bytes(const struct gpu_tier *tier);
uint64_t gpu_passes_held_bytes(const struct gpu_tier *tier);
/* With the tier's opening, and once all that was asked for has come home: came() hears of each request. */
void gpu_passes_make(struct gpu_tier *tier, void (*came)(struct gpu_tier *tier));
void gpu_passes_open(struct gpu_tier *tier);
/* With its end, and when all that is home. */
void gpu_passes_close(struct gpu_tier *tier, void (*came)(struct gpu_tier *tier));
void gpu_passes_free(struct gpu_tier *tier);

/* ---- updates.c ---- */

bool gpu_updates_are_wanted(const struct gpu_tier *tier);
/* With the tier's passes. problem: why it has none; NULL: it has. */
void gpu_updates_open(struct gpu_tier *tier, const char *problem);
void gpu_updates_close(struct gpu_tier *tier, void (*came)(struct gpu_tier *tier));
void gpu_updates_free(struct gpu_tier *tier);
/* The GPU is lost: the updates that it makes may never come home, and the job does not wait for them. */
void gpu_updates_fail(struct gpu_tier *tier);
bool gpu_updates_takes_any(const struct gpu_tier *tier);
struct gpu_tier *gpu_updates_tier(const struct gpu_updates *updates);

/* ---- mirrors.c ---- */

/* What GPUs give memory in. */
#define GPU_GRAIN ((uint64_t)2 << 20)

/* After gpu_passes_open(), of a tier that makes updates. */
void gpu_mirrors_open(struct gpu_tier *tier);
/* What they take of the budget. */
uint64_t gpu_mirrors_bytes(const struct gpu_tier *tier);
/* As gpu_passes_close(), and gpu_passes_free(). */
void gpu_mirrors_close(struct gpu_tier *tier, void (*came)(struct gpu_tier *tier));
void gpu_mirrors_free(struct gpu_tier *tier);

/* ---- segment.c ---- */

/* Registers those that are here; without memory for that none is, nor will be. came() hears of each request.
 */
void gpu_segments_add(struct gpu_tier *tier, void (*came)(struct gpu_tier *tier));
void gpu_segments_remove(struct gpu_tier *tier);

/* ---- rank.c ---- */

/* Goes on with the attaches that wait, once the tier is open or has failed. */
void gpu_ranks_go_on(struct gpu_tier *tier);
/* Something of a rank has come home: it goes, if it is gone. */
void gpu_rank_settle(struct gpu_rank *rank);
/* One of them has lost its connection, and may be dying: what it has queued is covered by no event then. */
bool gpu_ranks_may_die(const struct gpu_tier *tier);
bool gpu_rank_has_lease(const struct gpu_rank *rank, uint32_t unit);

/* ---- gradients.c: what gradients_state.c has in its table, and more ---- */

void gpu_make_gradients(struct gpu_rank *rank);
void gpu_refuse_gradients(struct gpu_rank *rank);
void gpu_pin_gradients(struct gpu_rank *rank);
void gpu_show_gradients(struct gpu_rank *rank);
void gpu_unpin_gradients(struct gpu_rank *rank);
void gpu_give_gradients_back(struct gpu_rank *rank);
void gpu_destroy_gradients(struct gpu_rank *rank);
void gpu_end_gradients(struct gpu_rank *rank);

/* A push of the rank is over. */
void gpu_gradients_go_on(struct gpu_rank *rank);
/* The rank's process is gone. False: its memory has still to go. */
bool gpu_gradients_are_gone(struct gpu_rank *rank);
/* What the gradients of all its ranks take of the budget. */
uint64_t gpu_gradients_bytes(const struct gpu_tier *tier);
/* The tier has failed: who waits for memory there is told. */
void gpu_fail_asking(struct gpu_tier *tier);

/* ---- push.c ---- */

/* Its engine writes to the rank's gradient buffers in host memory meanwhile. gpu_gradients_go_on() follows.
 */
void gpu_begin_moving(struct gpu_rank *rank);
void gpu_end_moving(struct gpu_rank *rank);

/* ---- sums.c ---- */

/* What the order says. */
void gpu_sum_init(struct gpu_sum *sum, const struct gpu_sum_order *order);

/* ---- push_end.c ---- */

/* Its GPU is lost, and nobody knows what that still does: nothing of the member's host memory is used again.
 */
void gpu_send_away(struct member *member, const char *problem);
/* Who waits is told, once: what a driver brings home that hung was given up before. */
void gpu_end_push(struct gpu_push *push, int status, const char *problem);
void gpu_end_sum(struct gpu_sum *sum, int status);
/* The tier's driver hangs, and what it was asked for may never come home: who waits for what was pushed is
 * told, and its ranks are sent away. */
void gpu_give_pushes_up(struct gpu_tier *tier);

/* ---- pack.c: what state.c has in its table, and more ---- */

bool gpu_close(struct gpu_pack *pack);
void gpu_enter_queue(struct gpu_pack *pack);
void gpu_leave_queue(struct gpu_pack *pack);
void gpu_expect(struct gpu_pack *pack);
void gpu_leave_queue_and_expect(struct gpu_pack *pack);
void gpu_copy(struct gpu_pack *pack);
void gpu_publish(struct gpu_pack *pack);
void gpu_give_slot(struct gpu_pack *pack);

/* Does what there is to do for those who wait for the pack. */
void gpu_pack_go_on(struct gpu_pack *pack);
/* Loads it, or renews it, for somebody who will want it. False: there is no slot for it. */
bool gpu_pack_prefetch(struct gpu_pack *pack, uint32_t distance);
/* What of that a share does by itself: whether it lacks values that host memory has, or will have; whether
 * nobody uses it, and its tier has not too much on its way; and to load it. False: there is no slot for it,
 * or somebody has come to use it. */
bool gpu_pack_is_behind(const struct gpu_pack *pack);
bool gpu_pack_is_free(const struct gpu_pack *pack);
bool gpu_pack_load(struct gpu_pack *pack, uint32_t distance);
/* Its copy, when it is time for that; and its end. */
void gpu_pack_submit(struct gpu_pack *pack);
void gpu_pack_finish(struct gpu_pack *pack, int status);
void gpu_pack_unpin(struct gpu_pack *pack);
/* Fails those who wait. */
void gpu_pack_fail(struct gpu_pack *pack, int status);
/* Those whose copies were held because a rank might die go on. */
void gpu_packs_resume(struct gpu_tier *tier);
/* The event of a rank that is gone is not awaited any more. */
void gpu_pack_forget(struct gpu_pack *pack, const struct gpu_rank *rank);

/* ---- gather.c ---- */

/* Those who wait for the pack may wait for something else now. */
void gpu_move_stalls(struct gpu_pack *pack);
/* Answers those who wait, as far as the pack has what they want. */
void gpu_grant(struct gpu_pack *pack);

#endif
