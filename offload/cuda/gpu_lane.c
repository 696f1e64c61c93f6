#include "offload/cuda/gpu_private.h"

static int open_lane(struct gpu_engine *engine, struct gpu_lane *lane, struct gpu_problem *problem)
{
	const struct driver *driver = &engine->driver;
	int r = gpu_check(engine, "cuStreamCreate", driver->stream_create(&lane->stream, DRIVER_NO_STREAM_0),
			  problem);

	for (unsigned i = 0; r == 0 && i < GPU_PIECES; i++)
		r = gpu_check(engine, "cuEventCreate",
			      driver->event_create(&lane->pieces[i].end, DRIVER_NO_TIMES), problem);
	return r;
}

int gpu_lanes_open(struct gpu_engine *engine, struct gpu_problem *problem)
{
	int r = 0;

	for (int direction = 0; r == 0 && direction < GPU_DIRECTIONS; direction++)
		r = open_lane(engine, &engine->lanes[direction], problem);
	if (r < 0)
		gpu_lanes_close(engine);
	return r;
}

/* Of a GPU that is lost they go with the context. */
void gpu_lanes_close(struct gpu_engine *engine)
{
	const struct driver *driver = &engine->driver;

	for (int direction = 0; direction < GPU_DIRECTIONS && !engine->is_lost; direction++) {
		struct gpu_lane *lane = &engine->lanes[direction];

		for (unsigned i = 0; i < GPU_PIECES; i++)
			if (lane->pieces[i].end)
				(void)driver->event_destroy(lane->pieces[i].end);
		if (lane->stream)
			(void)driver->stream_destroy(lane->stream);
	}
}
