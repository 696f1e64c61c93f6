/* Gradients: what ranks push, and the sums of it that a step applies.
 *
 * A push is a contribution: one rank's gradients of a unit in one micro-batch. It waits in the gradient
 * buffer of the rank until workers have added it to a sum. In stages 2 and 3 a unit has one sum, and a
 * micro-batch is added when all ranks have pushed it or closed their part of the step. In stages 0 and 1 each
 * rank has a sum, to which its contributions are added as they come; these sums are folded into one when the
 * step is decided. The open step is the one that ranks push to now. A rank that wants its buffer back while
 * its contribution waits for others gets it: the contribution is copied to a spare buffer. What all ranks
 * push from one GPU may wait there, and be summed there before it is added (combined.c). Where host memory
 * has no room for the sums of all packs, it has buffers for some, and the others are spilled to NVMe. The
 * norm of a step is measured over its sums by workers. A sum is measured before, if it is spilled or updated
 * before the step is decided, or once it has as many micro-batches as in the step before.
 *
 * A job's gradients are made with the job (gradients_new()), planned (gradients_plan(), and
 * spill_take_plan() if the sums do not fit), and get their memory (gradients_start()). Each rank gets a
 * pusher with its pages. The step folds (gradient_fold()) when all ranks have closed their part and all
 * contributions are summed, then measures (norm_start()); its sweep reads gradient_sum() and calls
 * gradient_reset_unit() for what it has applied. gradients_clear() gives the memory back, when the job is
 * quiet; the job may be planned again then.
 *
 * Session hands on pushes and waits for buffers; update asks for sums and the norm; values writes first
 * values into the sums' memory (job_writes_sums()); life plans, starts and ends. What comes home is reported
 * by struct gradient_listener, always on the loop; the listener must not free the job.
 *
 * Limits: 16 additions of a job at a time; a rank has as many contributions on their way as it has buffers,
 * and there is one spare buffer for each rank. More spare buffers are made only when no rank can go on
 * without one, within the node's host_budget; a push itself allocates nothing. */
#ifndef TIERD_DAEMON_GRADIENTS_FRONT_H
#define TIERD_DAEMON_GRADIENTS_FRONT_H

#include "daemon/gradients/gradient_listener.h"
#include "daemon/gradients/norm.h"
#include "daemon/gradients/norm_sums.h"
#include "daemon/gradients/spill.h"
#include "daemon/model/model.h"

/* ---- Its plan and its memory ---- */

int gradients_new(struct job *job);
void gradients_free(struct job *job);
/* Before anything is pushed. */
void gradients_listen(struct job *job, const struct gradient_listener *listener);

/* The bytes of all sums; UINT64_MAX: no memory is as large. */
uint64_t gradients_bytes(const struct job *job);
/* Lays out the sums. ret_bytes: of memory for all of them. -ENOMEM; -EOVERFLOW: no memory is as large. */
int gradients_plan(struct job *job, uint64_t *ret_bytes);
void gradients_forget_plan(struct job *job);
/* The memory that they take beside the sums: for sums and ranks; for spare buffers. */
uint64_t gradients_metadata_bytes(const struct job *job);
uint64_t gradients_spare_bytes(const struct job *job);
/* sums: memory as it was planned; the job owns it from now on. -ENOMEM. */
int gradients_start(struct job *job, struct memory sums);
/* Frees all of them, and their plan. Returns the sums' memory, which the caller owns. */
struct memory gradients_clear(struct job *job);
/* That memory; borrowed, as long as the job has it. */
const struct memory *gradients_memory(const struct job *job);

/* Nothing is being copied, added, moved or measured. */
bool gradients_are_quiet(const struct job *job);
/* Of the buffers for spilled sums; 0: none is ever spilled. */
uint64_t gradients_spill_bytes(const struct job *job);

/* For a rank whose pages are planned: member->buffer_count buffers. -ENOMEM. */
int pusher_new(struct member *member);
void pusher_free(struct member *member);

/* ---- The open step ---- */

/* The step that ranks push to now. */
uint64_t gradient_open_step(const struct job *job);
bool gradient_is_of_ranks(const struct job *job); /* stages 0 and 1: a sum for each rank */
uint32_t gradient_sums_per_unit(const struct job *job);
void gradient_push(struct pending *pending, const Tierd__Wire__Push *push);
void gradient_wait(struct pending *pending, const Tierd__Wire__BufferWait *wait);
void gradient_unblock(struct job *job, bool with_gathers);
void gradient_try(struct job *job, uint32_t unit);
void gradient_try_all(struct job *job);
/* The rank has closed its part, and pushes to the next step: sums do not wait for it any more. */
void gradient_close_part(struct member *member);
bool gradient_is_complete(const struct job *job); /* all contributions to the open step are summed */
bool gradient_fold(struct job *job);		  /* stages 0 and 1; true: sums are being folded */
bool gradient_has_content(const struct job *job, uint32_t unit);
/* Stages 2 and 3: the unit's sum has so many micro-batches, and nothing is being added. */
bool gradient_is_summed(const struct job *job, uint32_t unit, uint32_t micro_batches);
/* A contribution of the member cannot be summed before the other member has pushed the same unit. */
bool gradient_awaits(const struct member *member, const struct member *other);
char *gradient_sum(const struct job *job, uint32_t unit); /* as daemon/model/sums.h says */
/* Its sum has been applied, or comes to nothing. The units of a pack are reset together. */
void gradient_reset_unit(struct job *job, uint32_t unit);
void gradient_abort(struct job *job);	   /* the epoch has ended */
void gradient_drop_open(struct job *job);  /* the open step has failed */
void gradient_reset_open(struct job *job); /* it is skipped: its sums are not applied */
/* Nobody hears of the member's contributions any more. */
void gradient_forget_pendings(struct member *member);
/* And they are void: what a worker is reading is not summed again. */
void gradient_forget_member(struct member *member);
bool gradient_has_pushed(const struct member *member);
/* Since when the member waits for a buffer; 0: it does not wait. */
uint64_t gradient_waits_since(const struct member *member);
/* Nobody trains: spare buffers beyond the plan are given back. */
void gradient_give_spares_back(struct job *job);

/* The sums' memory has values that ranks write, not gradients. */
static inline bool job_writes_sums(const struct job *job)
{
	return !job_has_state(job) || step_is_reduced(&job->current) || job->current.state == WRITING_PLACING;
}

#endif
