#include <errno.h>
#include <stdlib.h>

#include "client/library/connection/message.h"
#include "client/library/gpu/gpu_own.h"

/* ---- Errors ---- */

static int errno_of(int error)
{
	switch (error) {
	case DRIVER_OUT_OF_MEMORY:
		return -ENOMEM;
	case DRIVER_NO_DEVICE:
	case DRIVER_INVALID_DEVICE:
		return -ENODEV;
	case DRIVER_INVALID_VALUE:
	case DRIVER_INVALID_CONTEXT:
	case DRIVER_INVALID_HANDLE:
	case DRIVER_CONTEXT_IS_DESTROYED:
		return -EINVAL;
	case DRIVER_NOT_PERMITTED:
		return -EPERM;
	case DRIVER_NOT_SUPPORTED:
		return -EOPNOTSUPP;
	default:
		return -EIO;
	}
}

int gpu_fail(const struct gpu *gpu, int error, const char *what)
{
	return message_fail(errno_of(error), "GPU %d: %s: %s (error %d of its driver)", (int)gpu->number,
			    what, driver_text(&gpu->driver, error), error);
}

/* ---- The context ---- */

int gpu_enter(const struct gpu *gpu, struct driver_context **ret_previous)
{
	struct driver_context *previous = NULL;
	int error = gpu->driver.context_current(&previous);

	if (error == DRIVER_DONE && previous != gpu->context)
		error = gpu->driver.context_enter(gpu->context);
	if (error != DRIVER_DONE)
		return gpu_fail(gpu, error, "making its context the thread's");
	*ret_previous = previous;
	return 0;
}

void gpu_exit(const struct gpu *gpu, struct driver_context *previous)
{
	if (previous != gpu->context)
		(void)gpu->driver.context_enter(previous);
}

/* ---- Life ---- */

static int find_device(struct gpu *gpu)
{
	struct dynamic_library library = { .is_found = false };
	int count = 0, error;

	if (!driver_open(&gpu->driver, &library))
		return message_fail(
			-ENODEV,
			"there is no GPU %d, for there is no driver that serves one: %s; open the job "
			"without a GPU, or see tierctl doctor",
			(int)gpu->number, library.problem);
	error = gpu->driver.device_count(&count);
	if (error == DRIVER_DONE && gpu->number >= count)
		return message_fail(-ENODEV,
				    "there is no GPU %d: this process has %d, counted from 0; "
				    "$CUDA_VISIBLE_DEVICES says which of the machine's",
				    (int)gpu->number, count);
	if (error == DRIVER_DONE)
		error = gpu->driver.device(&gpu->device, gpu->number);
	if (error == DRIVER_DONE)
		error = gpu->driver.device_uuid(&gpu->uuid, gpu->device);
	return error == DRIVER_DONE ? 0 : gpu_fail(gpu, error, "looking for it");
}

static int make_events(struct gpu *gpu)
{
	int error = gpu->driver.stream_create(&gpu->own, DRIVER_NO_STREAM_0);

	if (error == DRIVER_DONE)
		error = gpu->driver.event_create(&gpu->behind, DRIVER_NO_TIMES);
	for (unsigned i = 0; i < GPU_EVENTS && error == DRIVER_DONE; i++) {
		error = gpu->driver.event_create(&gpu->events[i], DRIVER_NO_TIMES | DRIVER_SHARED);
		if (error == DRIVER_DONE)
			error = gpu->driver.event_export(&gpu->handles[i], gpu->events[i]);
	}
	return error == DRIVER_DONE ? 0 : gpu_fail(gpu, error, "making events that tierd can wait for");
}

static int start(struct gpu *gpu)
{
	struct driver_context *previous;
	int r = find_device(gpu), error;

	if (r < 0)
		return r;
	error = gpu->driver.context_retain(&gpu->context, gpu->device);
	if (error != DRIVER_DONE)
		return gpu_fail(gpu, error, "making a context");
	r = gpu_enter(gpu, &previous);
	if (r < 0)
		return r;
	r = make_events(gpu);
	gpu_exit(gpu, previous);
	return r;
}

int gpu_new(int32_t number, struct gpu **ret_gpu)
{
	struct gpu *gpu = calloc(1, sizeof(*gpu));
	int r;

	if (!gpu)
		return message_fail_memory();
	pthread_mutex_init(&gpu->lock, NULL);
	gpu->number = number;
	gpu->holders = 1;
	r = start(gpu);
	if (r < 0) {
		gpu_free(gpu, false);
		return r;
	}
	gpu_mapping_collect();
	*ret_gpu = gpu;
	return 0;
}

/* With its context. */
static void drop_events(struct gpu *gpu)
{
	for (unsigned i = 0; i < GPU_EVENTS; i++)
		if (gpu->events[i])
			(void)gpu->driver.event_destroy(gpu->events[i]);
	if (gpu->behind)
		(void)gpu->driver.event_destroy(gpu->behind);
	if (gpu->own)
		(void)gpu->driver.stream_destroy(gpu->own);
}

static void stop(struct gpu *gpu)
{
	struct driver_context *previous;

	if (gpu_enter(gpu, &previous) == 0) {
		drop_events(gpu);
		gpu_exit(gpu, previous);
	}
	(void)gpu->driver.context_release(gpu->device);
}

struct gpu *gpu_free(struct gpu *gpu, bool is_child)
{
	if (!gpu || atomic_fetch_sub(&gpu->holders, 1) > 1)
		return NULL;
	if (gpu->context && !is_child)
		stop(gpu);
	for (struct gpu_stream *stream = gpu->streams, *next; stream; stream = next) {
		next = stream->next;
		free(stream);
	}
	if (!is_child)
		pthread_mutex_destroy(&gpu->lock);
	free(gpu);
	return NULL;
}

int32_t gpu_number(const struct gpu *gpu)
{
	return gpu->number;
}

const struct driver_uuid *gpu_uuid(const struct gpu *gpu)
{
	return &gpu->uuid;
}

const struct driver_event_handle *gpu_handles(const struct gpu *gpu)
{
	return gpu->handles;
}
