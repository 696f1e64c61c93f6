/* An attachment is what a job has mapped over one connection: the directory, the arena, this rank's lease
 * page and its gradients, and the same of a GPU, where the rank gathers on one.
 *
 * When the connection is lost and opened again, the job gets another one, and the older ones stay until the
 * job is left: a thread on the hot path may still use them, and gathered units stay readable until they are
 * released. In an older one live_epoch stays ATTACHMENT_NO_EPOCH. A lease is taken in the newest. The thread
 * that has taken one reads live_epoch again: either it sees that the attachment is an old one, or
 * attachment_collect(), which reads the leases later, sees its lease. */
#ifndef TIERD_CLIENT_ATTACHMENT_H
#define TIERD_CLIENT_ATTACHMENT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "client/library/connection/mapping.h"
#include "client/library/pages/gpu_tier.h"
#include "client/library/pages/gradient_room.h"
#include "proto/tierd.pb-c.h"

struct tierd_job;

#define ATTACHMENT_FDS 5 /* that come with a ready */
#define ATTACHMENT_NO_EPOCH UINT64_MAX
#define ATTACHMENT_NO_CONNECTION 0

struct gradient_buffer {
	uint32_t unit;	  /* while it is held */
	enum place place; /* in which memory */
	uint64_t pushes;
	bool is_being_zeroed; /* by the thread that took it, without the lock */
	uint64_t offset;      /* once it was taken */
	/* On the GPU: who has asked for it last, and the event that its last push is behind. */
	struct driver_stream *stream;
	uint64_t event;
};

struct attachment {
	/* Constant, but for the atomics: read without the lock. */
	_Atomic uint64_t live_epoch; /* ATTACHMENT_NO_EPOCH: ended, or never begun */
	struct directory_header *directory;
	struct lease_table host;
	_Atomic(struct gpu_tier *) gpu; /* NULL: none; it comes after the attachment, and stays */
	struct lease_header *leases;
	struct attachment *older;

	/* With the node's lock. */
	uint32_t connection; /* its number in the node, from 1; ATTACHMENT_NO_CONNECTION: the membership has
				ended */
	uint64_t number;     /* in the job, from 1 */
	struct mapping directory_mapping, arena_mapping, lease_mapping, gradient_mapping;
	_Atomic uint32_t *buffer_states; /* enum gradient_buffer_state, in the lease page */
	struct gradient_buffer *buffers;
	uint32_t buffer_count;
	bool is_without_gpu; /* this process cannot use the memory that it was given there */
	struct gradient_buffers gradient_buffers;
	struct gradient_room room; /* where the next buffers lie, if the rank has a room */
	uint64_t gradients_end;	   /* bytes behind were never handed out, and are zero */
	/* On the GPU: behind this event all has been written that was given back without having been copied;
	 * 0: there is none. */
	uint64_t gradients_behind;
	uint64_t arena_page_bytes;
};

/* NULL: the attachment has nothing of that memory. */
static inline const struct lease_table *attachment_table(const struct attachment *attachment,
							 enum place place)
{
	const struct gpu_tier *tier;

	if (place == PLACE_HOST)
		return &attachment->host;
	tier = atomic_load_explicit(&attachment->gpu, memory_order_acquire);
	return tier ? &tier->table : NULL;
}

/* Maps the pages of a ready for the job; the descriptors are the caller's. -EPROTO: they are not as the
 * protocol says; -EPROTONOSUPPORT: of another version, and the connection has ended. */
int attachment_new(struct tierd_job *job, const Tierd__Wire__JobReadyReply *reply, const int *fds);

/* Frees it and the older ones. In a forked child they have no mappings. */
struct attachment *attachment_free(struct attachment *attachment, bool is_child);

/* How many leases this rank has on the unit in that memory, or on all units wherever they are, in this
 * attachment and the older ones. It may be NULL. */
uint64_t attachment_leases(const struct attachment *attachment, enum place place, uint32_t unit);
uint64_t attachment_all_leases(const struct attachment *attachment, uint32_t unit_count);

/* Unmaps older attachments once no lease is left in any attachment: of two leases on a unit it is not known
 * which one is released first. */
void attachment_collect(struct tierd_job *job);

#endif
