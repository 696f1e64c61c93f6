#include "offload/cuda/gpu_private.h"

static int open_stream(struct gpu_engine *engine, struct driver_stream **ret_stream,
		       struct gpu_problem *problem)
{
	return gpu_check(engine, "cuStreamCreate",
			 engine->driver.stream_create(ret_stream, DRIVER_NO_STREAM_0), problem);
}

static int open_event(struct gpu_engine *engine, struct driver_event **ret_event, struct gpu_problem *problem)
{
	return gpu_check(engine, "cuEventCreate", engine->driver.event_create(ret_event, DRIVER_NO_TIMES),
			 problem);
}

static int open_lane(struct gpu_engine *engine, struct gpu_lane *lane, struct gpu_problem *problem)
{
	int r = open_stream(engine, &lane->stream, problem);

	for (unsigned i = 0; r == 0 && i < GPU_PIECES; i++)
		r = open_event(engine, &lane->pieces[i].end, problem);
	return r;
}

static int open_track(struct gpu_engine *engine, struct gpu_track *track, struct gpu_problem *problem)
{
	int r = open_stream(engine, &track->stream, problem);

	for (unsigned i = 0; r == 0 && i < GPU_PROGRAMS; i++)
		r = open_event(engine, &track->ends[i], problem);
	return r;
}

int gpu_lanes_open(struct gpu_engine *engine, struct gpu_problem *problem)
{
	int r = 0;

	for (int direction = 0; r == 0 && direction < GPU_DIRECTIONS; direction++)
		r = open_lane(engine, &engine->lanes[direction], problem);
	for (unsigned stream = 0; r == 0 && stream < GPU_STREAMS; stream++)
		r = open_track(engine, &engine->tracks[stream], problem);
	if (r < 0)
		gpu_lanes_close(engine);
	return r;
}

static void close_event(const struct gpu_engine *engine, struct driver_event *event)
{
	if (event)
		(void)engine->driver.event_destroy(event);
}

static void close_stream(const struct gpu_engine *engine, struct driver_stream *stream)
{
	if (stream)
		(void)engine->driver.stream_destroy(stream);
}

/* Of a GPU that is lost they go with the context. */
void gpu_lanes_close(struct gpu_engine *engine)
{
	for (int direction = 0; direction < GPU_DIRECTIONS && !engine->is_lost; direction++) {
		for (unsigned i = 0; i < GPU_PIECES; i++)
			close_event(engine, engine->lanes[direction].pieces[i].end);
		close_stream(engine, engine->lanes[direction].stream);
	}
	for (unsigned stream = 0; stream < GPU_STREAMS && !engine->is_lost; stream++) {
		for (unsigned i = 0; i < GPU_PROGRAMS; i++)
			close_event(engine, engine->tracks[stream].ends[i]);
		close_stream(engine, engine->tracks[stream].stream);
	}
}
