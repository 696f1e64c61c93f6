#include "offload/cuda/gpu_stream.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "common/log.h"
#include "offload/cuda/gpu_private.h"

struct gpu_stream {
	const struct gpu_engine *engine;
	struct driver_stream *stream;
	struct driver_event *events[GPU_STREAM_MARKS]; /* by mark, again and again */
	uint64_t marks;
};

static int check(const struct gpu_stream *stream, const char *call, int error)
{
	if (error == DRIVER_DONE)
		return 0;
	log_debug("%s: %s: %s (error %d)", stream->engine->name, call,
		  driver_text(&stream->engine->driver, error), error);
	return gpu_errno(error);
}

int gpu_stream_use(struct gpu_stream *stream)
{
	return check(stream, "cuCtxSetCurrent",
		     stream->engine->driver.context_enter(stream->engine->driver_context));
}

static int open_stream(struct gpu_stream *stream)
{
	const struct driver *driver = &stream->engine->driver;
	int r = gpu_stream_use(stream);

	if (r == 0)
		r = check(stream, "cuStreamCreate",
			  driver->stream_create(&stream->stream, DRIVER_NO_STREAM_0));
	for (unsigned i = 0; r == 0 && i < GPU_STREAM_MARKS; i++)
		r = check(stream, "cuEventCreate", driver->event_create(&stream->events[i], DRIVER_NO_TIMES));
	return r;
}

int gpu_stream_new(struct gpu_engine *engine, struct gpu_stream **ret_stream)
{
	_cleanup_(gpu_stream_freep) struct gpu_stream *stream = calloc(1, sizeof(*stream));
	int r;

	if (!stream)
		return -ENOMEM;
	stream->engine = engine;
	r = open_stream(stream);
	if (r == 0)
		*ret_stream = TAKE_PTR(stream);
	return r;
}

/* Of a GPU that is lost they go with the context: the calls fail, and that is all. */
struct gpu_stream *gpu_stream_free(struct gpu_stream *stream)
{
	if (!stream)
		return NULL;
	(void)gpu_stream_use(stream);
	for (unsigned i = 0; i < GPU_STREAM_MARKS && stream->events[i]; i++)
		(void)stream->engine->driver.event_destroy(stream->events[i]);
	if (stream->stream)
		(void)stream->engine->driver.stream_destroy(stream->stream);
	free(stream);
	return NULL;
}

struct driver_stream *gpu_stream_handle(const struct gpu_stream *stream)
{
	return stream->stream;
}

int gpu_stream_copy(struct gpu_stream *stream, driver_address to, driver_address from, size_t bytes)
{
	int r = gpu_stream_use(stream);

	return r < 0 ? r
		     : check(stream, "cuMemcpyAsync",
			     stream->engine->driver.copy(to, from, bytes, stream->stream));
}

int gpu_stream_launch(struct gpu_stream *stream, struct driver_function *function, uint32_t blocks,
		      uint32_t threads, const void *parameter)
{
	void *parameters[] = { (void *)parameter };
	int r = gpu_stream_use(stream);

	return r < 0 ? r
		     : check(stream, "cuLaunchKernel",
			     stream->engine->driver.launch(function, blocks, 1, 1, threads, 1, 1, 0,
							   stream->stream, parameters, NULL));
}

int gpu_stream_mark(struct gpu_stream *stream, uint64_t *ret_mark)
{
	int r = gpu_stream_use(stream);

	if (r == 0)
		r = check(stream, "cuEventRecord",
			  stream->engine->driver.event_record(
				  stream->events[stream->marks % GPU_STREAM_MARKS], stream->stream));
	if (r == 0)
		*ret_mark = stream->marks++;
	return r;
}

int gpu_stream_is_past(struct gpu_stream *stream, uint64_t mark)
{
	int r = gpu_stream_use(stream), error;

	assert(stream->marks - mark <= GPU_STREAM_MARKS);
	if (r < 0)
		return r;
	/* It may never get there. */
	if (stream->engine->is_lost)
		return -ENODEV;
	error = stream->engine->driver.event_query(stream->events[mark % GPU_STREAM_MARKS]);
	if (error == DRIVER_NOT_READY)
		return 0;
	r = check(stream, "cuEventQuery", error);
	return r < 0 ? r : 1;
}
