/* GPU: packs in the memory of GPUs, for ranks that gather there.
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
 * A GPU is opened by the first rank that asks for it, by an engine (offload/cuda) with a thread of its own,
 * and closed with its last tier. A tier is made by the first rank of the job that asks for it, and ends when
 * its last rank has left. Where the GPU is lost its ranks are told at their next gather.
 *
 * Life cycle: gpu_new() and gpu_free() with the job, gpu_node_free() with the node; gpu_forget() with a
 * member. A job whose ranks have left has no tier once gpu_is_quiet(), so nothing copies from its arena any
 * more.
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

#include "daemon/gpu/figures.h"
#include "daemon/model/model.h"

#define GPU_RANKS 16

int gpu_new(struct job *job);
void gpu_free(struct job *job);
void gpu_node_free(struct node *node);

/* The member leaves in good order. What its process has queued on the GPU goes on, and nothing is overwritten
 * before that has ended. */
void gpu_leave(struct member *member);
/* The member has left, or its process has died: its part of a tier goes. Both take a member without one. */
void gpu_forget(struct member *member);
bool gpu_has_leases(const struct member *member);
bool gpu_is_quiet(const struct job *job);

/* In the job's turn, and when a client has rung: gives slots to those that wait for one, and loads what comes
 * next. */
void gpu_serve(struct job *job);

void gpu_attach(struct pending *pending, const Tierd__Wire__GpuAttach *attach);
void gpu_gather(struct pending *pending, const Tierd__Wire__GpuGather *gather);

#endif
