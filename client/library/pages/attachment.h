/* An attachment is what a job has mapped over one connection: the directory, the arena, this rank's lease
 * page and its gradients.
 *
 * When the connection is lost and opened again, the job gets another one, and the older stay until the job is
 * left: a thread on the hot path may be anywhere, and what was gathered stays readable until it is released.
 * Of an older one live_epoch is ATTACHMENT_NO_EPOCH for ever. A lease is taken from the newest; who has taken
 * it looks at live_epoch once more, so either he sees that the attachment is an old one, or
 * attachment_collect(), which looks at the leases later, sees his. */
#ifndef TIERD_CLIENT_ATTACHMENT_H
#define TIERD_CLIENT_ATTACHMENT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "client/library/connection/mapping.h"
#include "client/library/pages/gradient_room.h"
#include "proto/pages.h"
#include "proto/tierd.pb-c.h"

struct debug;
struct tierd_job;

#define ATTACHMENT_FDS 5 /* that come with a ready */
#define ATTACHMENT_NO_EPOCH UINT64_MAX
#define ATTACHMENT_NO_CONNECTION 0

struct gradient_buffer {
	uint32_t unit; /* while it is held */
	uint64_t pushes;
	bool is_being_zeroed; /* by the thread that took it, without the lock */
	uint64_t offset;      /* once it was taken */
};

struct attachment {
	/* Constant, but for the atomics: read without the lock. */
	_Atomic uint64_t live_epoch; /* ATTACHMENT_NO_EPOCH: ended, or never begun */
	struct directory_header *directory;
	struct directory_entry *entries;
	struct lease_header *leases;
	_Atomic uint32_t *counters;
	char *arena;
	struct debug *debug; /* NULL: not TIERD_DEBUG=leases */
	struct attachment *older;

	/* With the node's lock. */
	uint32_t connection; /* as the node counts them, from 1; none: the job was left over it */
	struct mapping directory_mapping, arena_mapping, lease_mapping, gradient_mapping;
	_Atomic uint32_t *buffer_states; /* enum gradient_buffer_state, in the lease page */
	struct gradient_buffer *buffers;
	uint32_t buffer_count;
	struct gradient_buffers gradient_buffers;
	struct gradient_room room; /* where the next ones lie, if they have one */
	uint64_t gradients_end;	   /* what lies behind was never handed out, and a new memfd is zero */
	uint64_t arena_page_bytes;
};

/* Maps the pages of a ready for the job; the descriptors are the caller's. -EPROTO: they are not as the
 * protocol says; -EPROTONOSUPPORT: of another version, and the connection has ended. */
int attachment_new(struct tierd_job *job, const Tierd__Wire__JobReadyReply *reply, const int *fds);

/* With the older ones. In a forked child the mappings are not there. */
struct attachment *attachment_free(struct attachment *attachment, bool is_child);

/* How many leases this rank has on the unit, in this attachment and the older ones. */
uint64_t attachment_leases(const struct attachment *attachment, uint32_t unit);

/* Gives the memory of older attachments back if no lease is left in any: which of two leases on a unit is
 * released first nobody says, so none counts as that of the older view before both are gone. */
void attachment_collect(struct tierd_job *job);

#endif
