/* Events behind what streams of the program have queued. */
#include <errno.h>
#include <stdlib.h>

#include "client/library/connection/message.h"
#include "client/library/gpu/gpu_own.h"

#define MARKING "marking what a stream has queued, which must be one of this GPU's own context"

/* All with the lock, in the GPU's context. */

/* One of another context is there, though the driver says the same of it. */
static bool is_gone(const struct gpu *gpu, int error, struct driver_stream *stream)
{
	struct driver_context *context;

	return (error == DRIVER_INVALID_HANDLE || error == DRIVER_CONTEXT_IS_DESTROYED) &&
	       gpu->driver.stream_context(stream, &context) != DRIVER_DONE;
}

/* What a stream was told goes on when it is destroyed, in the context that it was of. */
static int follow(struct gpu *gpu, struct driver_stream *stream)
{
	int error = gpu->driver.event_record(gpu->behind, stream);

	if (is_gone(gpu, error, stream))
		return gpu->driver.context_synchronize();
	return error == DRIVER_DONE ? gpu->driver.stream_wait(gpu->own, gpu->behind, 0) : error;
}

static int record_next(struct gpu *gpu)
{
	int error = gpu->driver.event_record(gpu->events[gpu_event_at(gpu->recorded + 1)], gpu->own);

	gpu->recorded += error == DRIVER_DONE;
	return error;
}

/* Follows streams that were noted. Those that cannot be followed stay noted; those that have gone do not. */
static int follow_noted(struct gpu *gpu)
{
	int first = DRIVER_DONE;

	for (struct gpu_stream *noted = gpu->streams; noted; noted = noted->next) {
		int error;

		if (!atomic_exchange(&noted->is_used, false))
			continue;
		error = follow(gpu, noted->stream);
		if (error == DRIVER_DONE) {
			gpu->has_followed = true;
			continue;
		}
		noted->is_used = true;
		first = first == DRIVER_DONE ? error : first;
	}
	return first;
}

static int join(struct gpu *gpu)
{
	int error = follow_noted(gpu);

	if (error == DRIVER_DONE && gpu->has_followed)
		error = record_next(gpu);
	if (error == DRIVER_DONE && gpu->has_followed)
		gpu->joined = gpu->recorded;
	gpu->has_followed = gpu->has_followed && error != DRIVER_DONE;
	return error;
}

/* ---- Calls ---- */

int gpu_record(struct gpu *gpu, struct driver_stream *stream, uint64_t *ret_number)
{
	struct driver_context *previous;
	int r = gpu_enter(gpu, &previous), error;

	if (r < 0)
		return r;
	pthread_mutex_lock(&gpu->lock);
	error = follow(gpu, stream);
	if (error == DRIVER_DONE)
		error = record_next(gpu);
	if (error == DRIVER_DONE)
		*ret_number = gpu->recorded;
	pthread_mutex_unlock(&gpu->lock);
	gpu_exit(gpu, previous);
	return error == DRIVER_DONE ? 0 : gpu_fail(gpu, error, MARKING);
}

int gpu_follow(struct gpu *gpu, uint64_t number, struct driver_stream *stream)
{
	struct driver_context *previous;
	int r = gpu_enter(gpu, &previous), error;

	if (r < 0)
		return r;
	pthread_mutex_lock(&gpu->lock);
	error = gpu->driver.stream_wait(stream, gpu->events[gpu_event_at(number)], 0);
	pthread_mutex_unlock(&gpu->lock);
	gpu_exit(gpu, previous);
	return error == DRIVER_DONE ? 0 : gpu_fail(gpu, error, "having a stream wait for another one");
}

static struct gpu_stream *find(const struct gpu *gpu, const struct driver_stream *stream)
{
	struct gpu_stream *noted = atomic_load_explicit(&gpu->streams, memory_order_acquire);

	while (noted && noted->stream != stream)
		noted = noted->next;
	return noted;
}

/* Looks at once whether the stream is one of this GPU's, with an event that nobody waits for. 1: it has gone,
 * and what it was told has ended. */
static int probe(struct gpu *gpu, struct driver_stream *stream)
{
	struct driver_context *previous;
	int r = gpu_enter(gpu, &previous), error;
	bool has_gone;

	if (r < 0)
		return r;
	error = gpu->driver.event_record(gpu->behind, stream);
	has_gone = is_gone(gpu, error, stream);
	if (has_gone)
		error = gpu->driver.context_synchronize();
	gpu_exit(gpu, previous);
	return error == DRIVER_DONE ? has_gone : gpu_fail(gpu, error, MARKING);
}

static int add(struct gpu *gpu, struct driver_stream *stream)
{
	struct gpu_stream *noted = find(gpu, stream);
	int r;

	if (noted) {
		noted->is_used = true;
		return 0;
	}
	r = probe(gpu, stream);
	if (r != 0)
		return r < 0 ? r : 0;
	noted = malloc(sizeof(*noted));
	if (!noted)
		return message_fail_memory();
	noted->stream = stream;
	noted->is_used = true;
	noted->next = gpu->streams;
	atomic_store_explicit(&gpu->streams, noted, memory_order_release);
	return 0;
}

int gpu_note(struct gpu *gpu, struct driver_stream *stream)
{
	struct gpu_stream *noted = find(gpu, stream);
	int r;

	if (noted) {
		if (!atomic_load_explicit(&noted->is_used, memory_order_relaxed))
			atomic_store_explicit(&noted->is_used, true, memory_order_release);
		return 0;
	}
	pthread_mutex_lock(&gpu->lock);
	r = add(gpu, stream);
	pthread_mutex_unlock(&gpu->lock);
	return r;
}

int gpu_fill(struct gpu *gpu, char *address, unsigned char value, size_t bytes, struct driver_stream *stream)
{
	struct driver_context *previous;
	int r = gpu_note(gpu, stream), error;

	if (r < 0 || bytes == 0)
		return r;
	r = gpu_enter(gpu, &previous);
	if (r < 0)
		return r;
	error = gpu->driver.fill((uintptr_t)address, value, bytes, stream);
	gpu_exit(gpu, previous);
	/* Another thread may have joined between the two. */
	return error == DRIVER_DONE ? gpu_note(gpu, stream) : gpu_fail(gpu, error, "zeroing gradients");
}

int gpu_join(struct gpu *gpu, uint64_t *ret_number)
{
	struct driver_context *previous;
	int r = gpu_enter(gpu, &previous), error;

	if (r < 0)
		return r;
	pthread_mutex_lock(&gpu->lock);
	error = join(gpu);
	if (error == DRIVER_DONE)
		*ret_number = gpu->joined;
	pthread_mutex_unlock(&gpu->lock);
	gpu_exit(gpu, previous);
	return error == DRIVER_DONE ? 0 : gpu_fail(gpu, error, MARKING);
}

int gpu_record_all(struct gpu *gpu, struct driver_event *event)
{
	int error;

	pthread_mutex_lock(&gpu->lock);
	(void)follow_noted(gpu);
	error = gpu->driver.event_record(event, gpu->own);
	pthread_mutex_unlock(&gpu->lock);
	return error;
}
