/* A GPU tier is what an attachment has of the GPU that its rank gathers on: a directory and a lease page of
 * its own, and the daemon's memory there. */
#ifndef TIERD_CLIENT_GPU_TIER_H
#define TIERD_CLIENT_GPU_TIER_H

#include "client/library/connection/mapping.h"
#include "client/library/gpu/gpu.h"
#include "client/library/pages/lease_table.h"
#include "proto/tierd.pb-c.h"

struct tierd_job;

#define GPU_TIER_FDS 3 /* that come with the answer */

struct gpu_tier {
	/* Constant: read without the lock. */
	struct lease_table table;
	bool is_whole; /* units leave it only to be updated */
	struct gpu_lease_header *leases;
	_Atomic uint64_t *released;
	struct gpu *gpu; /* the job's */

	/* With the node's lock. */
	struct gpu_mapping *mapping;   /* NULL: it was given back */
	struct gpu_mapping *gradients; /* NULL: it has none */
	struct mapping directory_mapping, lease_mapping;
};

/* Maps what the answer brings; the descriptors are the caller's. -EPROTO: it is not as the protocol says.
 * Other errors leave a message. */
int gpu_tier_new(const struct tierd_job *job, const Tierd__Wire__GpuAttachReply *reply, const int *fds,
		 struct gpu_tier **ret_tier);

/* Maps the rank's gradient buffers, unless they are mapped already; the descriptor is the caller's. Errors
 * leave a message. */
int gpu_tier_add_gradients(struct gpu_tier *tier, int fd, uint64_t bytes);

/* Gives the memory of the GPU back; pages stay. No lease is held there. */
void gpu_tier_retire(struct gpu_tier *tier, bool is_child);
struct gpu_tier *gpu_tier_free(struct gpu_tier *tier, bool is_child);

/* How many events it has that copies are behind. */
size_t gpu_tier_events(const struct gpu_tier *tier);
/* The stream waits for that one. */
int gpu_tier_wait(const struct gpu_tier *tier, size_t event, struct driver_stream *stream);

/* The rank's event behind what the stream has queued so far, by its number. */
int gpu_tier_mark(struct gpu_tier *tier, struct driver_stream *stream, uint64_t *ret_number);

/* Before a lease on the unit is given back: the unit may be overwritten once what the stream has queued so
 * far has ended. Any thread. */
int gpu_tier_pass(struct gpu_tier *tier, uint32_t unit, struct driver_stream *stream);

/* Before a step is closed: units may be updated once what was passed so far has ended. */
int gpu_tier_fence(struct gpu_tier *tier);

#endif
