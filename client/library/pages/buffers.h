/* Gradient buffers: those that this rank has, which units it holds them for, and who zeros one just now. All
 * of it with the node's lock. */
#ifndef TIERD_CLIENT_BUFFERS_H
#define TIERD_CLIENT_BUFFERS_H

#include "client/library/pages/job.h"

#define NO_BUFFER UINT32_MAX

uint32_t buffer_count(const struct tierd_job *job);
uint32_t buffer_state(const struct tierd_job *job, uint32_t buffer);
void buffer_set_state(struct tierd_job *job, uint32_t buffer, enum gradient_buffer_state state);
/* That the unit has; or NO_BUFFER. */
uint32_t buffer_held(const struct tierd_job *job, uint32_t unit);
char *buffer_address(const struct tierd_job *job, uint32_t buffer);

/* Large ones are zeroed without the lock, which others need meanwhile: between these two calls. Till then
 * nobody pushes the buffer, hands it out or gives it back: two would write to it. */
struct gradient_buffer *buffer_begin_zeroing(struct tierd_job *job, uint32_t buffer);
void buffer_end_zeroing(struct tierd_job *job, struct gradient_buffer *own);
/* buffer: or NO_BUFFER. */
bool buffer_is_being_zeroed(const struct tierd_job *job, uint32_t buffer);
/* Until some thread is done, perhaps with another one: look again. Releases the lock. */
void buffer_wait_for_zeroing(struct tierd_job *job);

/* Waits until no thread zeros a buffer any more: who gives one back meanwhile would have two write to it. May
 * release the lock. */
void gradients_settle(struct tierd_job *job);

/* Gives back the buffers that this rank holds; they are settled. */
void gradients_drop(struct tierd_job *job);

/* At the begin of an epoch: the daemon has let go of all buffers. Of a push that it refused because the old
 * epoch had ended, nobody waited for the answer that would have freed the buffer. */
void gradients_recover(struct tierd_job *job);

/* A step is closed: where the buffers of the next one lie follows from what is taken in it alone. */
void gradients_rewind(struct tierd_job *job);

/* The name of a unit of which this rank holds a buffer, from the one numbered *next on; NULL: none. */
const char *gradients_held(const struct tierd_job *job, uint32_t *next);

#endif
