#include "offload/cuda/gpu_private.h"

static struct gpu_event *event_of(struct gpu_request *request)
{
	return container_of(request, struct gpu_event, request);
}

static int close_event(struct gpu_engine *engine, struct gpu_request *request)
{
	struct driver_event *event = event_of(request)->event;
	int r;

	event_of(request)->event = NULL;
	if (!event || engine->is_lost)
		return 0;
	r = gpu_check(engine, "cuEventDestroy", engine->driver.event_destroy(event), &request->problem);
	return engine->is_lost ? 0 : r;
}

static int create(struct gpu_engine *engine, struct gpu_request *request)
{
	struct gpu_event *event = event_of(request);
	const struct driver *driver = &engine->driver;
	int r;

	if (engine->is_lost)
		return gpu_refuse(engine, &request->problem);
	r = gpu_check(engine, "cuEventCreate",
		      driver->event_create(&event->event, DRIVER_NO_TIMES | DRIVER_SHARED),
		      &request->problem);
	if (r < 0)
		return r;
	r = gpu_check(engine, "cuIpcGetEventHandle", driver->event_export(&event->handle, event->event),
		      &request->problem);
	if (r == 0)
		return 0;
	if (!engine->is_lost)
		(void)driver->event_destroy(event->event);
	event->event = NULL;
	return r;
}

static int open_event(struct gpu_engine *engine, struct gpu_request *request)
{
	struct gpu_event *event = event_of(request);

	if (engine->is_lost)
		return gpu_refuse(engine, &request->problem);
	return gpu_check(engine, "cuIpcOpenEventHandle",
			 engine->driver.event_import(&event->event, event->handle), &request->problem);
}

void gpu_event_create(struct gpu_engine *engine, struct gpu_event *event)
{
	event->event = NULL;
	gpu_submit(engine, &event->request, create);
}

void gpu_event_open(struct gpu_engine *engine, struct gpu_event *event)
{
	event->event = NULL;
	gpu_submit(engine, &event->request, open_event);
}

void gpu_event_close(struct gpu_engine *engine, struct gpu_event *event)
{
	gpu_submit(engine, &event->request, close_event);
}
