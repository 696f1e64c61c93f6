#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

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

/* ---- What the driver has not taken back ---- */

/* A GPU that is lost may use it as long as its context is there; and the driver keeps it when that goes. */
struct left {
	int device;
	struct gpu_memory memory;
	struct queue link;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct queue all_left = { &all_left, &all_left };

/* Without host memory for that it goes with the process. */
static void leave(const struct gpu_engine *engine, const struct gpu_memory *memory)
{
	struct left *left = calloc(1, sizeof(*left));

	if (!left)
		return;
	left->device = engine->device;
	left->memory = *memory;
	pthread_mutex_lock(&lock);
	queue_push(&all_left, &left->link);
	pthread_mutex_unlock(&lock);
}

static struct left *take_left(uint64_t contexts)
{
	struct left *found = NULL;

	pthread_mutex_lock(&lock);
	QUEUE_FOREACH (link, &all_left) {
		struct left *left = queue_entry(link, struct left, link);

		if (!found && !(contexts >> left->device & 1))
			found = left;
	}
	if (found)
		queue_remove(&found->link);
	pthread_mutex_unlock(&lock);
	return found;
}

void gpu_memory_forget(const struct gpu_engine *engine)
{
	const struct driver *driver = &engine->driver;
	uint64_t contexts = gpu_contexts(engine);
	struct left *left;

	/* The thread's own has gone, and these calls want none. */
	(void)driver->context_enter(NULL);
	while ((left = take_left(contexts))) {
		const struct gpu_memory *memory = &left->memory;
		int error = DRIVER_DONE;

		if (memory->is_mapped)
			error = driver->memory_unmap(memory->address, memory->bytes);
		if (memory->is_reserved && error == DRIVER_DONE)
			(void)driver->address_free(memory->address, memory->bytes);
		if (memory->allocation)
			(void)driver->memory_release(memory->allocation);
		free(left);
	}
}

/* ---- Making and unmaking ---- */

/* What there is of it. Goes on after a failure, and returns the first. */
static int undo(struct gpu_engine *engine, struct gpu_memory *memory, struct gpu_problem *problem)
{
	const struct driver *driver = &engine->driver;
	int r = 0, other = 0;

	memory->fd = fd_close(memory->fd);
	if (memory->is_mapped && !engine->is_lost) {
		r = gpu_check(engine, "cuMemUnmap", driver->memory_unmap(memory->address, memory->bytes),
			      problem);
		memory->is_mapped = r < 0;
	}
	if (memory->is_reserved && r == 0 && !engine->is_lost) {
		r = gpu_check(engine, "cuMemAddressFree",
			      driver->address_free(memory->address, memory->bytes), problem);
		memory->is_reserved = r < 0;
	}
	if (memory->allocation && !engine->is_lost) {
		other = gpu_check(engine, "cuMemRelease", driver->memory_release(memory->allocation),
				  problem);
		memory->allocation = other < 0 ? memory->allocation : 0;
	}
	if (memory->is_reserved || memory->allocation)
		leave(engine, memory);
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
