/* The inside of gradients: contributions, the sums they go to, and what moves them. */
#ifndef TIERD_DAEMON_GRADIENTS_OWN_H
#define TIERD_DAEMON_GRADIENTS_OWN_H

#include "daemon/gpu/gpu.h"
#include "daemon/gradients/gradients.h"
#include "daemon/gradients/spill.h"
#include "daemon/model/model.h"

#define REDUCTIONS 16

/* Its gradients, and their sums. */
struct job_gradients {
	struct memory sums_memory;
	const struct gradient_listener *listener;
	/* By unit: where its sum is in sums_memory, which has a region for each rank in stages 0 and 1; or in
	 * the pack's buffer, where sums may be spilled. */
	uint64_t *sum_offsets;
	uint64_t sum_buffer_bytes; /* 0: no sum is spilled */
	struct spill *spill;	   /* NULL in the same case */
	struct sum *sums;
	struct reduction *reductions;
	struct queue free_reductions, sums_waiting;
	unsigned reductions_running; /* and copies and transfers of gradients that are in flight */
	unsigned arriving;	     /* contributions, from the memory of a GPU */
	/* Contributions that wait for their sums, or arrive: of the open step and of the next one, by the
	 * step's number modulo 2. */
	uint64_t waiting_of_step[2];
	uint32_t folded_units; /* units before this one are folded, in stages 0 and 1 */
	struct queue free_spares, all_spares;
	unsigned extra_spares; /* beyond the plan */
	struct norm *norm;
	struct norm_sums measured; /* of the open step; of those of its sums that struct sum says, and norm */
	struct gpu_choice choice;  /* of the epoch: where what comes from GPUs is summed */
};

/* The sum of a unit's gradients in the open step (stages 0 and 1: of one rank's). */
struct sum {
	struct queue waiting; /* contributions */
	uint32_t waiting_count;
	struct queue link;   /* of sums_waiting: for a free reduction */
	uint32_t unit, rank; /* rank: of stages 0 and 1 */
	uint32_t next;	     /* the micro-batch that is added next */
	uint32_t usual;	     /* so many were added in the last step that was measured */
	uint32_t measured;   /* it has been measured with so many; 0: it has not */
	bool has_content;    /* of the open step */
	bool is_reducing;
};

/* One rank's gradients of a unit in one micro-batch, not yet summed. */
struct contribution {
	struct queue link; /* of its sum */
	struct member *member;
	uint32_t rank, unit, micro_batch, buffer;
	uint64_t step; /* that it belongs to */
	const void *data;
	const uint8_t
		*absent; /* a bit for each tensor: it has no gradient of it; NULL: it has all gradients */
	struct spare_buffer *spare; /* where it was put aside, or NULL: in the member's buffer */
	struct pending *pending;
	bool is_active;	  /* pushed and not yet summed */
	bool is_reading;  /* a worker reads it, or a GPU writes it */
	bool is_arriving; /* the GPU does, or will: in no queue */
	bool is_on_gpu;	  /* it is in the memory of its rank's GPU, and not where data says */
	bool is_void;	  /* one of them does, and its epoch has ended */
	/* When it was complete on the GPU; 0: it was not pushed there, or has waited there and come home. */
	uint64_t complete_ns;
};

/* A rank, as one that pushes. */
struct pusher {
	struct contribution *contributions; /* by buffer */
	uint8_t *absent;		    /* of each of them, one after the other */
	uint32_t *pushed;		    /* by unit: micro-batches since its last step */
	uint32_t *closed_pushed;	    /* and in the part that it has closed */
	uint64_t pushed_count;		    /* of all units */
	struct queue buffer_waiters;
};

/* One sum being added to, on the workers. */
struct reduction {
	struct collective_push push;
	struct work measuring;
	struct queue link;
	struct job *job;
	struct sum *sum; /* NULL: folds the ranks' sums of the unit */
	uint32_t unit;
	struct collective_segment segments[UNIT_TRAINABLE_SECTIONS];
	const void **pointers;		     /* by rank */
	struct contribution **contributions; /* by rank */
	bool is_combined;		     /* a GPU sums them first */
	uint32_t place;			     /* the next rank in whose place there may be some of that sum */
	uint64_t share;			     /* elements of it that each place has, at most */
	uint64_t added;			     /* elements of it */
};

/* Memory for one contribution beside the ranks' buffers. */
struct spare_buffer {
	struct queue link;     /* of the free ones */
	struct queue all_link; /* of all */
	struct memory memory;
	struct contribution contribution;
	struct work work;	     /* copies it here */
	struct contribution *source; /* that is being copied here; it waits for no sum meanwhile */
	uint64_t source_bytes;
	uint8_t absent[]; /* of the contribution */
};

struct sum *gradient_sum_of(const struct job *job, uint32_t unit, uint32_t rank);
char *gradient_sum_address(const struct job *job, const struct sum *sum);
/* Whether the rank may push that unit from there: -EINVAL. */
int buffers_check(const struct member *member, const Tierd__Wire__Push *push, char *message, size_t size);
/* Where it pushes it from. */
uint64_t buffers_offset(const struct member *member, const Tierd__Wire__Push *push);
/* The bytes that a rank which waits for a buffer wants; whether a buffer that it has pushed has some of them.
 */
struct gradient_span buffers_wanted(const struct member *member, const Tierd__Wire__BufferWait *wait);
bool buffers_block(const struct member *member, uint32_t buffer, struct gradient_span wanted);

bool gradient_is_in_use(const struct job *job, uint32_t unit);

/* Adds the next micro-batch to the sum, if all contributions to it are there. */
void sum_try(struct job *job, struct sum *sum);

/* It has no gradient of that tensor of its unit. */
static inline bool contribution_lacks(const struct contribution *contribution, uint32_t tensor)
{
	return contribution->absent && contribution->absent[tensor / 8] >> tensor % 8 & 1;
}

/* It waits in its sum's queue; it leaves the queue. */
void contribution_wait(struct contribution *contribution);
void contribution_take(struct contribution *contribution);
/* It has been read: the rank has its buffer back, and hears of it. */
void contribution_finish(struct contribution *contribution);

/* It comes from the memory of a GPU, behind that event of its rank; then it waits. */
void arrival_begin(struct contribution *contribution, uint64_t event);
/* One that waits on the GPU is copied to host memory, and waits again. False: the GPU is lost, and the epoch
 * has ended. */
bool arrival_bring_home(struct contribution *contribution);
/* Its epoch has ended. */
void arrival_void(struct contribution *contribution);
/* Those of the job's ranks are of that step from now on. */
void arrivals_relabel(struct job *job, uint64_t step);

/* Whether it is to wait on the GPU that it is pushed from, to be summed there. */
bool combined_may_be(const struct contribution *contribution);
/* What is collected can be added now, after a sum on a GPU if is_combined says so. False: of some the bytes
 * have to come home first, and are on their way. */
bool combined_choose(struct reduction *reduction);
/* They are summed on the GPU; then some of that sum is added to the unit's. Or all is void, or waits again to
 * come home. */
void combined_begin(struct reduction *reduction);
/* So are more of it, when some have been. False: those were all. */
bool combined_add_next(struct reduction *reduction);
/* All contributions are added: how long that has taken by the way that they went. */
void combined_note(const struct reduction *reduction);
/* The contributions of a reduction whose epoch has ended are not added. */
void reduction_void(struct reduction *reduction);
/* Those that a GPU could not sum wait as before. */
void reduction_put_back(struct reduction *reduction);

/* A rank that waits for a buffer has its contribution put aside, if it waits for others. */
void spare_help(struct member *member);

int reduction_init(struct job *job);
void reduction_clear(struct job *job);
int spares_init(struct job *job);
void spares_clear(struct job *job);

#endif
