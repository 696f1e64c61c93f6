#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "common/size.h"
#include "offload/cuda/gpu_private.h"

static struct gpu_memory *memory_of(struct gpu_request *request)
{
	return container_of(request, struct gpu_memory, request);
}

static struct driver_memory_kind kind_of(const struct gpu_engine *engine)
{
	return (struct driver_memory_kind){
		.type = DRIVER_PINNED,
		.handles = DRIVER_DESCRIPTOR,
		.location = { DRIVER_ON_GPU, engine->device },
	};
}

/* Says what is free instead of what the driver says. */
static int say_what_is_free(struct gpu_engine *engine, struct gpu_memory *memory)
{
	size_t is_free, total;
	int r = gpu_check(engine, "cuMemGetInfo", engine->driver.memory_info(&is_free, &total),
			  &memory->request.problem);

	if (r < 0)
		return r;
	snprintf(memory->request.problem.text, sizeof(memory->request.problem.text),
		 "%s: %.1f MiB are wanted, and %.1f of %.1f MiB are free", engine->name,
		 (double)memory->bytes / MIB, (double)is_free / MIB, (double)total / MIB);
	return -ENOMEM;
}

static int allocate(struct gpu_engine *engine, struct gpu_memory *memory)
{
	const struct driver_memory_kind kind = kind_of(engine);
	const struct driver *driver = &engine->driver;
	size_t granularity;
	int r = gpu_check(engine, "cuMemGetAllocationGranularity",
			  driver->memory_granularity(&granularity, &kind, DRIVER_LEAST_GRANULARITY),
			  &memory->request.problem);

	if (r < 0)
		return r;
	memory->bytes = size_round_up(memory->bytes, granularity);
	r = gpu_check(engine, "cuMemCreate",
		      driver->memory_create(&memory->allocation, memory->bytes, &kind, 0),
		      &memory->request.problem);
	return r == -ENOMEM ? say_what_is_free(engine, memory) : r;
}

static int map(struct gpu_engine *engine, struct gpu_memory *memory)
{
	const struct driver *driver = &engine->driver;
	struct gpu_problem *problem = &memory->request.problem;
	int r = gpu_check(engine, "cuMemAddressReserve",
			  driver->address_reserve(&memory->address, memory->bytes, 0, 0, 0), problem);

	memory->is_reserved = r == 0;
	if (r == 0)
		r = gpu_check(engine, "cuMemMap",
			      driver->memory_map(memory->address, memory->bytes, 0, memory->allocation, 0),
			      problem);
	memory->is_mapped = r == 0;
	return r;
}

static int allow(struct gpu_engine *engine, struct gpu_memory *memory)
{
	struct driver_access accesses[GPUS_MAX];
	size_t count = 0;

	for (int gpu = 0; gpu < GPUS_MAX; gpu++)
		if (engine->peers >> gpu & 1)
			accesses[count++] =
				(struct driver_access){ { DRIVER_ON_GPU, gpu }, DRIVER_READ_WRITE };
	return gpu_check(engine, "cuMemSetAccess",
			 engine->driver.memory_allow(memory->address, memory->bytes, accesses, count),
			 &memory->request.problem);
}

static int export(struct gpu_engine *engine, struct gpu_memory *memory)
{
	int fd;
	int r = gpu_check(engine, "cuMemExportToShareableHandle",
			  engine->driver.memory_export(&fd, memory->allocation, DRIVER_DESCRIPTOR, 0),
			  &memory->request.problem);

	if (r < 0)
		return r;
	memory->fd = fd;
	return fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 ? -errno : 0;
}

/* What there is of it. Goes on after a failure, and returns the first. */
static int undo(struct gpu_engine *engine, struct gpu_memory *memory, struct gpu_problem *problem)
{
	const struct driver *driver = &engine->driver;
	int r = 0, other = 0;

	memory->fd = fd_close(memory->fd);
	if (memory->is_mapped && !engine->is_lost)
		r = gpu_check(engine, "cuMemUnmap", driver->memory_unmap(memory->address, memory->bytes),
			      problem);
	if (memory->is_reserved && r == 0 && !engine->is_lost)
		r = gpu_check(engine, "cuMemAddressFree",
			      driver->address_free(memory->address, memory->bytes), problem);
	if (memory->allocation && !engine->is_lost)
		other = gpu_check(engine, "cuMemRelease", driver->memory_release(memory->allocation),
				  problem);
	memory->address = memory->allocation = 0;
	memory->is_mapped = memory->is_reserved = false;
	return r < 0 ? r : other;
}

static int create(struct gpu_engine *engine, struct gpu_request *request)
{
	struct gpu_memory *memory = memory_of(request);
	struct gpu_problem ignored;
	int r;

	if (engine->is_lost)
		return gpu_refuse(engine, &request->problem);
	r = allocate(engine, memory);
	if (r == 0)
		r = map(engine, memory);
	if (r == 0)
		r = allow(engine, memory);
	if (r == 0)
		r = export(engine, memory);
	if (r < 0)
		(void)undo(engine, memory, &ignored);
	return r;
}

static int destroy(struct gpu_engine *engine, struct gpu_request *request)
{
	int r = undo(engine, memory_of(request), &request->problem);

	return engine->is_lost ? 0 : r;
}

void gpu_memory_create(struct gpu_engine *engine, struct gpu_memory *memory)
{
	memory->address = memory->allocation = 0;
	memory->is_mapped = memory->is_reserved = false;
	memory->fd = -1;
	gpu_submit(engine, &memory->request, create);
}

void gpu_memory_destroy(struct gpu_engine *engine, struct gpu_memory *memory)
{
	gpu_submit(engine, &memory->request, destroy);
}
