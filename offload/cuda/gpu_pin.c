/* Host memory is registered in pieces, because the driver takes a tenth of a second for a GiB and more, and
 * copies wait for the thread meanwhile. No copy crosses the boundary of two pieces: the driver would refuse
 * it. */
#include <assert.h>

#include "offload/cuda/gpu_private.h"

static struct gpu_pin *pin_of(struct gpu_request *request)
{
	return container_of(request, struct gpu_pin, request);
}

/* From there to the next boundary, or the end. */
static size_t piece_at(const struct gpu_pin *pin, size_t offset)
{
	size_t bytes = GPU_PIN_BYTES - ((uintptr_t)pin->base + offset) % GPU_PIN_BYTES;

	return bytes < pin->bytes - offset ? bytes : pin->bytes - offset;
}

/* The last piece of what is registered. */
static int unregister_one(struct gpu_engine *engine, struct gpu_pin *pin, struct gpu_problem *problem)
{
	uintptr_t end = (uintptr_t)pin->base + pin->registered;
	uintptr_t begin = (end - 1) / GPU_PIN_BYTES * GPU_PIN_BYTES;
	char *base = begin < (uintptr_t)pin->base ? pin->base : (char *)begin;

	pin->registered = (size_t)(base - (char *)pin->base);
	return gpu_check(engine, "cuMemHostUnregister", engine->driver.host_unregister(base), problem);
}

static int add(struct gpu_engine *engine, struct gpu_request *request)
{
	struct gpu_pin *pin = pin_of(request);
	struct gpu_problem ignored;
	size_t bytes = piece_at(pin, pin->registered);
	int r;

	if (engine->is_lost)
		return gpu_refuse(engine, &request->problem);
	r = gpu_check(
		engine, "cuMemHostRegister",
		engine->driver.host_register((char *)pin->base + pin->registered, bytes, DRIVER_PORTABLE),
		&request->problem);
	while (r < 0 && pin->registered > 0 && !engine->is_lost)
		(void)unregister_one(engine, pin, &ignored);
	if (r < 0)
		return r;
	pin->registered += bytes;
	return pin->registered < pin->bytes ? GPU_AGAIN : 0;
}

/* Goes on after a failure, and returns the first. */
static int remove_one(struct gpu_engine *engine, struct gpu_request *request)
{
	struct gpu_pin *pin = pin_of(request);
	struct gpu_problem problem;
	int r;

	if (engine->is_lost || pin->registered == 0)
		return engine->is_lost ? 0 : request->status;
	r = unregister_one(engine, pin, &problem);
	if (r < 0 && request->status == 0) {
		request->status = r;
		request->problem = problem;
	}
	return GPU_AGAIN;
}

void gpu_pin_add(struct gpu_engine *engine, struct gpu_pin *pin)
{
	assert(pin->bytes > 0);
	pin->registered = 0;
	gpu_submit(engine, &pin->request, add);
}

void gpu_pin_remove(struct gpu_engine *engine, struct gpu_pin *pin)
{
	pin->request.status = 0;
	gpu_submit(engine, &pin->request, remove_one);
}
