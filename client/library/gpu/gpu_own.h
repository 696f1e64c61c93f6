/* What the files of the module share. */
#ifndef TIERD_CLIENT_GPU_OWN_H
#define TIERD_CLIENT_GPU_OWN_H

#include <pthread.h>
#include <stdatomic.h>

#include "client/library/gpu/gpu.h"

/* A stream of the program's that was noted. It may be gone, unless is_used. */
struct gpu_stream {
	struct driver_stream *stream;
	_Atomic bool is_used; /* since the last join */
	struct gpu_stream *next;
};

struct gpu {
	struct driver driver;
	int32_t number;
	int device;
	struct driver_uuid uuid;
	struct driver_context *context; /* NULL: none */
	struct driver_stream *own;	/* in which events are recorded */
	struct driver_event *behind;	/* what it waits for: recorded in a stream of the program's */
	struct driver_event *events[GPU_EVENTS];
	struct driver_event_handle handles[GPU_EVENTS];
	_Atomic(struct gpu_stream *) streams; /* noted; they stay in the list */
	_Atomic unsigned holders;	      /* the rank, and mappings */

	pthread_mutex_t lock; /* for what follows, and for all that is recorded */
	uint64_t recorded, joined;
	bool has_followed; /* own waits for more streams than were joined */
};

/* The error that a call of the driver's failed with, as an errno, with a message. what: "recording an event".
 */
int gpu_fail(const struct gpu *gpu, int error, const char *what);

/* A call of the driver's needs the GPU's context: makes it the thread's, and then the one before again. */
int gpu_enter(const struct gpu *gpu, struct driver_context **ret_previous);
void gpu_exit(const struct gpu *gpu, struct driver_context *previous);

/* Records the event behind what all streams have queued that were noted, as far as those can be waited for.
 */
int gpu_record_all(struct gpu *gpu, struct driver_event *event);

/* Unmaps what is not used any more. */
void gpu_mapping_collect(void);

#endif
