/* GPU: packs in the memory of GPUs, for ranks that gather there, and gradients that they push from there.
 *
 * A *tier* is what a job has on one GPU: memory with slots, a directory, and for each pack how it is present
 * there (state.c has the states). Values come from host memory alone: a pack that is wanted on a GPU is
 * wanted in host memory first (daemon/residency), at the same version, pinned there, and copied. What lies in
 * a tier is a copy, so that nothing is lost with it: an update needs no tier, and makes what is there old.
 *
 * Nobody waits for a copy on a processor. A gather is answered when its copy has a place in the order of the
 * GPU, with the event that is behind it; and a slot is overwritten behind the events of those who have
 * released it (proto/gpu_pages.h). A gather that finds its unit in the directory needs nothing of this
 * module.
 *
 * A rank that pushes from its GPU has memory there for itself (gradients.c), in which its gradient buffers
 * lie as they do in host memory. What it pushes is copied from the one to the other (push.c), behind the
 * event that the rank names; then it is as if the rank had pushed it from host memory. Where all ranks of a
 * job share the GPU, it can sum what they have pushed (sums.c), and the sum alone is copied. So can several
 * GPUs that exchange, each a part of it (scatter.c).
 *
 * Several GPUs of a job may get what they want next from one another, each a part from host memory and the
 * rest by NCCL (share.c, exchange.c); who asks for a pack waits for no other GPU.
 *
 * A GPU is opened by the first rank that asks for it, by an engine (offload/cuda) with a thread of its own,
 * and closed with its last tier. A tier is made by the first rank of the job that asks for it, and ends when
 * its last rank has left. Where the GPU is lost its ranks are told at their next gather.
 *
 * Life cycle: gpu_new() and gpu_free() with the job, gpu_node_free() with the node; gpu_leave_gradients()
 * when a member has left, gpu_forget() when it is freed. A job whose ranks have left has no tier once
 * gpu_is_quiet(), so nothing copies from its arena any more.
 *
 * A GPU can also make updates of the job, of what lies in host memory (updates.h). What they need comes with
 * a tier and goes with it; who holds it keeps the tier. State may stay there from one update to the next, as
 * a copy (mirrors.h).
 *
 * What its sensors say is looked at by a worker, while a GPU is in use (sensing.c); figures.h has that and
 * more for who shows it.
 *
 * Callers: the session's requests, and the job's life, whose turns call gpu_serve(). What was in flight and
 * has come home ends in job_settle().
 *
 * Limits: so many ranks of a job on one GPU as GPU_RANKS says; prefetches move at most 64 MiB at once. */
#ifndef TIERD_DAEMON_GPU_FRONT_H
#define TIERD_DAEMON_GPU_FRONT_H

#include "daemon/gpu/choice.h"
#include "daemon/gpu/figures.h"
#include "daemon/gpu/mirrors.h"
#include "daemon/gpu/updates.h"
#include "daemon/model/model.h"

#define GPU_RANKS 16

struct collective_segment;

int gpu_new(struct job *job);
void gpu_free(struct job *job);
void gpu_node_free(struct node *node);

/* At the end of the daemon: so many of its works are with a GPU's driver or NVML. True: a call of theirs has
 * kept it for too long, and this has said which. */
unsigned gpu_works(const struct node *node);
bool gpu_keeps_the_end(const struct node *node);

/* The member leaves in good order. What its process has queued on the GPU goes on, and nothing is overwritten
 * before that has ended. */
void gpu_leave(struct member *member);
/* The member has left, or its process has died: its part of a tier goes. Both take a member without one. */
void gpu_forget(struct member *member);
bool gpu_has_leases(const struct member *member);
/* How many leases it has on the unit, and on which GPU, as tierd counts them. */
uint32_t gpu_leases(const struct member *member, uint32_t unit, uint32_t *ret_gpu);
bool gpu_is_quiet(const struct job *job);
/* It has no tier any more, and closes no GPU: only then it may be freed. */
bool gpu_is_gone(const struct job *job);

/* Pages of the job's cache, which are registered with its GPUs, so that copies from there are fast, and are
 * not any more before they leave. */
void gpu_segment_came(struct job *job, uint32_t segment);
void gpu_segment_leaves(struct job *job, uint32_t segment);

/* In the job's turn, and when a client has rung: gives slots to those that wait for one, and loads what comes
 * next. */
void gpu_serve(struct job *job);

void gpu_attach(struct pending *pending, const Tierd__Wire__GpuAttach *attach);
void gpu_gather(struct pending *pending, const Tierd__Wire__GpuGather *gather);

/* ---- Gradients ---- */

void gpu_gradients(struct pending *pending, const Tierd__Wire__GpuGradients *gradients);
/* The member has left: its gradient buffers in host memory are to be its own again. It is busy until then. */
void gpu_leave_gradients(struct member *member);

/* Whether the member may push from its GPU: -EINVAL, or what its GPU has failed with. */
int gpu_check_push(const struct member *member, char *message, size_t size);

/* Of a push that is over; on the loop. status 0: the gradients are in host memory. */
typedef void (*gpu_pushed)(struct member *member, uint32_t buffer, int status, const char *problem);
/* Copies those bytes of the member's buffer to where they lie in host memory, behind that event of its (0: at
 * once); the caller has checked it. No bytes: it is over when the event has come, and the gradients are
 * complete on the GPU. One push of a buffer at a time. */
void gpu_push(struct member *member, uint32_t buffer, struct gradient_span span, uint64_t event,
	      gpu_pushed done);
/* It ends with -ECANCELED, unless it is over. */
void gpu_cancel_push(struct member *member, uint32_t buffer);
/* Of one that is over, with status 0: when its event came, and the gradients were complete; 0: it had none.
 */
uint64_t gpu_pushed_complete_ns(const struct member *member, uint32_t buffer);

/* All ranks of the job push from GPUs, which can sum now what they have pushed there: one that they share, or
 * several that exchange. */
bool gpu_can_sum(const struct job *job);

/* So many of a job at a time. */
#define GPU_SUMS 16
/* Where no rank's gradient buffers have a contribution. */
#define GPU_SUM_NONE UINT64_MAX

/* Of a sum that is over; on the loop. */
typedef void (*gpu_summed)(void *context, int status);

/* Contributions to a sum that are complete on their GPUs. */
struct gpu_sum_order {
	struct job *job;
	const char *name; /* of the unit, for texts */
	const struct collective_segment *segments;
	unsigned segment_count;
	uint64_t share;		   /* elements of the sum that take a contribution's place */
	uint64_t first[GPU_RANKS]; /* by rank: the byte of its gradient buffers that its contribution begins
				      at */
	gpu_summed done;
	void *context;
};

/* Sums them in the order of docs/numerics.md, after gpu_can_sum() has said yes in this turn. The sum, in
 * fp32, is written to host memory where the contributions would be copied to: its first elements to the place
 * of the first rank that contributes, as many of the next ones to that of the second, and so on. done() never
 * runs inside this call. After an error these places may have anything, the contributions are on their GPUs
 * as before, and gpu_can_sum() says no. */
void gpu_sum_begin(const struct gpu_sum_order *order);

/* Bytes of contributions that GPUs have summed, since the daemon has the job. */
uint64_t gpu_summed_bytes(const struct job *job);

#endif
