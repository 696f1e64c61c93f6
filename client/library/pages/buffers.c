#include "client/library/pages/buffers.h"

#include <string.h>

/* The states lie in the lease page: this rank sets HELD and PUSHED, and the daemon FREE. Only the library
 * knows which unit a buffer is held for. */
uint32_t buffer_state(const struct tierd_job *job, uint32_t buffer)
{
	return atomic_load_explicit(&job->attachment->buffer_states[buffer], memory_order_acquire);
}

void buffer_set_state(struct tierd_job *job, uint32_t buffer, enum gradient_buffer_state state)
{
	atomic_store_explicit(&job->attachment->buffer_states[buffer], state, memory_order_release);
}

static void put_behind(struct attachment *attachment, uint64_t event)
{
	if (attachment->gradients_behind < event)
		attachment->gradients_behind = event;
}

void buffer_give_back(struct tierd_job *job, uint32_t buffer)
{
	struct attachment *attachment = job->attachment;
	const struct gradient_buffer *own = &attachment->buffers[buffer];
	bool is_held = buffer_state(job, buffer) == GRADIENT_BUFFER_HELD;
	uint64_t event = own->event;

	/* A GPU that is lost writes nothing any more. */
	if (own->place == PLACE_GPU && (!is_held || gpu_tier_mark(attachment->gpu, own->stream, &event) == 0))
		put_behind(attachment, event);
	buffer_set_state(job, buffer, GRADIENT_BUFFER_FREE);
}

uint32_t buffer_count(const struct tierd_job *job)
{
	return job->attachment ? job->attachment->buffer_count : 0;
}

uint32_t buffer_held(const struct tierd_job *job, uint32_t unit)
{
	for (uint32_t i = 0; i < buffer_count(job); i++)
		if (buffer_state(job, i) == GRADIENT_BUFFER_HELD && job->attachment->buffers[i].unit == unit)
			return i;
	return NO_BUFFER;
}

char *buffer_address(const struct tierd_job *job, uint32_t buffer)
{
	const struct gradient_buffer *own = &job->attachment->buffers[buffer];

	if (own->place == PLACE_GPU)
		return gpu_mapping_address(job->attachment->gpu->gradients) + own->offset;
	return (char *)job->attachment->gradient_mapping.address + own->offset;
}

int buffer_fill(const struct buffer_writer *writer, char *address, unsigned char value, uint64_t bytes)
{
	if (writer->gpu)
		return gpu_fill(writer->gpu, address, value, bytes, writer->stream);
	memset(address, value, bytes);
	return 0;
}

/* ---- Zeroing ---- */

struct gradient_buffer *buffer_begin_zeroing(struct tierd_job *job, uint32_t buffer)
{
	struct gradient_buffer *own = &job->attachment->buffers[buffer];

	own->is_being_zeroed = true;
	connection_exit(job->node);
	return own;
}

void buffer_end_zeroing(struct tierd_job *job, struct gradient_buffer *own)
{
	pthread_mutex_lock(&job->node->lock);
	own->is_being_zeroed = false;
	pthread_cond_broadcast(&job->node->changed);
}

bool buffer_is_being_zeroed(const struct tierd_job *job, uint32_t buffer)
{
	return buffer < buffer_count(job) && job->attachment->buffers[buffer].is_being_zeroed;
}

void buffer_wait_for_zeroing(struct tierd_job *job)
{
	pthread_cond_wait(&job->node->changed, &job->node->lock);
}

/* ---- All of them ---- */

static bool any_is_being_zeroed(const struct tierd_job *job)
{
	for (uint32_t i = 0; i < buffer_count(job); i++)
		if (buffer_is_being_zeroed(job, i))
			return true;
	return false;
}

void gradients_settle(struct tierd_job *job)
{
	while (any_is_being_zeroed(job))
		buffer_wait_for_zeroing(job);
}

void gradients_drop(struct tierd_job *job)
{
	for (uint32_t i = 0; i < buffer_count(job); i++)
		if (buffer_state(job, i) == GRADIENT_BUFFER_HELD)
			buffer_give_back(job, i);
	gradients_rewind(job);
}

void gradients_rewind(struct tierd_job *job)
{
	if (job->attachment)
		gradient_room_rewind(&job->attachment->room);
}

void gradients_recover(struct tierd_job *job)
{
	for (uint32_t i = 0; i < buffer_count(job); i++) {
		/* The daemon has freed some without having waited for the event. */
		put_behind(job->attachment, job->attachment->buffers[i].event);
		if (buffer_state(job, i) == GRADIENT_BUFFER_PUSHED)
			buffer_set_state(job, i, GRADIENT_BUFFER_FREE);
	}
}

const char *gradients_held(const struct tierd_job *job, uint32_t *next)
{
	for (uint32_t i = *next; i < buffer_count(job); i++)
		if (buffer_state(job, i) == GRADIENT_BUFFER_HELD) {
			*next = i + 1;
			return job_unit_name(job, job->attachment->buffers[i].unit);
		}
	return NULL;
}
