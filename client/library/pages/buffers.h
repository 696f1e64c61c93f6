/* Gradient buffers of this rank: their states, the units that they are held for, and which are being zeroed.
 * All functions need the node's lock. */
#ifndef TIERD_CLIENT_BUFFERS_H
#define TIERD_CLIENT_BUFFERS_H

#include "client/library/pages/job.h"

#define NO_BUFFER UINT32_MAX

uint32_t buffer_count(const struct tierd_job *job);
uint32_t buffer_state(const struct tierd_job *job, uint32_t buffer);
void buffer_set_state(struct tierd_job *job, uint32_t buffer, enum gradient_buffer_state state);
/* One that is held, or whose push is refused, is free. On a GPU nobody has read it, so nothing but an event
 * tells when it is not written to any more: whoever gets these bytes next follows that. */
void buffer_give_back(struct tierd_job *job, uint32_t buffer);
/* The buffer that is held for the unit; or NO_BUFFER. */
uint32_t buffer_held(const struct tierd_job *job, uint32_t unit);
/* In the memory that it is held in. */
char *buffer_address(const struct tierd_job *job, uint32_t buffer);

/* Who writes to a buffer: this thread, or a stream of the GPU. */
struct buffer_writer {
	struct gpu *gpu; /* NULL: this thread */
	struct driver_stream *stream;
};
static inline enum place buffer_writer_place(const struct buffer_writer *writer)
{
	return writer->gpu ? PLACE_GPU : PLACE_HOST;
}
/* 0, or as gpu_fill(). */
int buffer_fill(const struct buffer_writer *writer, char *address, unsigned char value, uint64_t bytes);

/* A buffer is zeroed between these two calls, without the lock: it may be large. Until the second one no
 * thread pushes the buffer, takes it or gives it back, because two threads would write to it. */
struct gradient_buffer *buffer_begin_zeroing(struct tierd_job *job, uint32_t buffer);
void buffer_end_zeroing(struct tierd_job *job, struct gradient_buffer *own);
/* buffer: or NO_BUFFER. */
bool buffer_is_being_zeroed(const struct tierd_job *job, uint32_t buffer);
/* Returns when a thread has zeroed some buffer, perhaps another one: the caller checks again. Releases the
 * lock. */
void buffer_wait_for_zeroing(struct tierd_job *job);

/* Waits until no thread zeros a buffer. May release the lock. */
void gradients_settle(struct tierd_job *job);

/* Gives back the buffers that this rank holds; gradients_settle() comes first. */
void gradients_drop(struct tierd_job *job);

/* Frees all pushed buffers at the begin of an epoch, when the daemon uses none: no thread may have waited for
 * the reply to a push that it refused because the old epoch had ended. */
void gradients_recover(struct tierd_job *job);

/* When a step is closed: the places of the next step's buffers depend on that step alone. */
void gradients_rewind(struct tierd_job *job);

/* The name of the unit of the next held buffer, from number *next on; NULL: there is no more. */
const char *gradients_held(const struct tierd_job *job, uint32_t *next);

#endif
