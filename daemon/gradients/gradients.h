/* Pushes, sums, spilling, the norm. */
#ifndef TIERD_DAEMON_GRADIENTS_FRONT_H
#define TIERD_DAEMON_GRADIENTS_FRONT_H

#include "daemon/gradients/gradient_listener.h"
#include "daemon/gradients/norm_work.h"
#include "daemon/gradients/spill.h"
#include "daemon/model/model.h"

/* The sum of a unit's gradients in the open step (stages 0 and 1: of one rank's). */
struct sum {
	struct queue waiting; /* contributions */
	uint32_t waiting_count;
	struct queue link;   /* of job->sums_waiting for a reduction */
	uint32_t unit, rank; /* rank: of stages 0 and 1 */
	uint32_t next;	     /* the micro-batch that comes next */
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
	const uint8_t *absent;	  /* a bit for each tensor that it has no gradient of; NULL: it has all */
	struct held_buffer *held; /* where it was put aside, or NULL: in the member's buffer */
	struct pending *pending;
	bool is_active;	 /* pushed and not yet summed */
	bool is_reading; /* a worker reads it */
	bool is_void;	 /* its epoch has ended while a worker reads it */
};

/* ---- gradient.c, reduction.c, held.c ---- */
int gradient_init(struct job *job);
/* The step that ranks push to now. */
uint64_t gradient_open_step(const struct job *job);
void gradient_clear(struct job *job);
void gradient_push(struct pending *pending, const Tierd__Wire__Push *push);
void gradient_wait(struct pending *pending, const Tierd__Wire__BufferWait *wait);
void gradient_unblock(struct job *job, bool with_gathers);
void gradient_try(struct job *job, uint32_t unit);
void gradient_try_all(struct job *job);
/* A rank has closed its part: sums need not wait for it any more. */
void gradient_try_closed(struct job *job);
bool gradient_is_complete(const struct job *job); /* all contributions to the open step are summed */
bool gradient_fold(struct job *job);		  /* stages 0, 1: true if something was started */
bool gradient_has_content(const struct job *job, uint32_t unit);
char *gradient_sum(const struct job *job, uint32_t unit); /* as daemon/model/sums.h says */
/* Its sum is consumed. The units of a pack are reset together. */
void gradient_reset_unit(struct job *job, uint32_t unit);
void gradient_abort(struct job *job);	  /* the epoch has ended */
void gradient_drop_open(struct job *job); /* the open step has failed */
/* The member's contributions have nobody to answer any more; are void (what a worker reads is not summed
 * again). */
void gradient_forget_pendings(struct member *member);
void gradient_forget_member(struct member *member);
bool gradient_has_pushed(const struct member *member);
uint64_t gradient_held_bytes(const struct job *job, unsigned count);

/* Nobody trains: what held buffers have grown beyond the plan is given back. */
void gradient_shrink_held(struct job *job);

/* The sums' place has values that are written, not gradients. */
static inline bool job_writes_sums(const struct job *job)
{
	return job->phase < JOB_TRAINED || step_is_reduced(&job->current) ||
	       job->current.state == WRITING_PLACING;
}

#endif
