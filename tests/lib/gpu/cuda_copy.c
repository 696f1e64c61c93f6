/* What streams of the stand-in for the GPU driver do. In $STANDIN_FAILURES "copy", "fill" and "function" are
 * calls, too, which fail when a stream comes to them, and lose the GPU. */
#include <string.h>

#include "tests/lib/gpu/standin.h"

void stream_touch(struct driver_stream *stream, driver_address address, size_t bytes, bool is_write,
		  const char *what)
{
	for (size_t done = 0; done < bytes;) {
		const struct standin_place place =
			memory_find(address + done, bytes - done, standin_device(stream->context), what);
		const struct race_range range = { place.table, place.offset, place.bytes, is_write };

		if (place.table)
			race_check(&stream->actor, &range, what);
		done += place.bytes;
	}
}

static void begin_copy(struct driver_stream *stream, struct task *task)
{
	stream_touch(stream, task->from, task->bytes, false, "copy");
	stream_touch(stream, task->to, task->bytes, true, "copy");
}

static int copy(struct driver_stream *stream, struct task *task)
{
	int error = script_error("copy");

	if (error == DRIVER_DONE)
		memmove((void *)(uintptr_t)task->to, (void *)(uintptr_t)task->from, task->bytes);
	return error;
}

static void begin_fill(struct driver_stream *stream, struct task *task)
{
	stream_touch(stream, task->to, task->bytes, true, "fill");
}

static int fill(struct driver_stream *stream, struct task *task)
{
	int error = script_error("fill");

	if (error == DRIVER_DONE)
		memset((void *)(uintptr_t)task->to, task->value, task->bytes);
	return error;
}

static void begin_function(struct driver_stream *stream, struct task *task)
{
	task->before = malloc(sizeof(*task->before));
	if (!task->before)
		standin_abort("out of memory");
	*task->before = stream->actor.clock;
	race_step(&stream->actor);
}

static int function(struct driver_stream *stream, struct task *task)
{
	int error = script_error("function");

	if (error != DRIVER_DONE)
		return error;
	/* That it runs tells the program that all before it has ended. */
	pthread_mutex_lock(&standin_lock);
	standin_see(task->before);
	pthread_mutex_unlock(&standin_lock);
	task->function(task->argument);
	return DRIVER_DONE;
}

/* What lies there, for a copy that is submitted. The driver refuses a range that is pinned in part. */
static int look(driver_address address, size_t bytes, bool *is_pageable)
{
	struct driver_context *context;
	struct standin_place place;
	int error = cuCtxGetCurrent(&context);

	if (error != DRIVER_DONE || !context)
		return error;
	pthread_mutex_lock(&standin_lock);
	place = memory_find(address, bytes, standin_device(context), "copy");
	pthread_mutex_unlock(&standin_lock);
	*is_pageable |= place.kind == PLACE_PAGEABLE;
	return place.kind != PLACE_GPU && place.bytes < bytes ? DRIVER_INVALID_VALUE : DRIVER_DONE;
}

int cuMemcpyAsync(driver_address to, driver_address from, size_t bytes, struct driver_stream *stream)
{
	const struct task task = { .begin = begin_copy, .run = copy, .to = to, .from = from, .bytes = bytes };
	bool is_pageable = false;
	int error = look(to, bytes, &is_pageable);

	if (error == DRIVER_DONE)
		error = look(from, bytes, &is_pageable);
	return error == DRIVER_DONE ? stream_submit(__func__, stream, &task, is_pageable) : error;
}

int cuMemsetD8Async(driver_address to, unsigned char value, size_t bytes, struct driver_stream *stream)
{
	const struct task task = {
		.begin = begin_fill, .run = fill, .to = to, .bytes = bytes, .value = value
	};

	return stream_submit(__func__, stream, &task, false);
}

int cuLaunchHostFunc(struct driver_stream *stream, void (*run)(void *argument), void *argument)
{
	const struct task task = {
		.begin = begin_function, .run = function, .function = run, .argument = argument
	};

	return stream_submit(__func__, stream, &task, false);
}

void standin_expect(int device, driver_address address, size_t bytes)
{
	struct standin_place place;

	pthread_mutex_lock(&standin_lock);
	place = memory_find(address, bytes, device, "registration");
	if (place.kind != PLACE_GPU || place.bytes < bytes)
		standin_abort("GPU memory is gone that is still registered");
	pthread_mutex_unlock(&standin_lock);
}

void standin_touch(struct driver_stream *stream, driver_address address, size_t bytes, bool is_write)
{
	pthread_mutex_lock(&standin_lock);
	stream_touch(stream, address, bytes, is_write, "host function");
	pthread_mutex_unlock(&standin_lock);
}
