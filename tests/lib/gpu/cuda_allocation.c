/* GPU memory of the stand-in for the GPU driver: $STANDIN_BYTES of each GPU, counted by each process for what
 * it has made. It is poisoned when it is new. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "tests/lib/gpu/cuda_memory.h"

#define MAGIC UINT64_C(0x5354414e44494e31)
#define POISON 0xff /* a number of no floating-point format */

static struct queue allocations = { &allocations, &allocations };

static void allocation_free(struct allocation *allocation)
{
	queue_remove(&allocation->link);
	fd_close(allocation->fd);
	fd_close(allocation->watch);
	free(allocation);
}

/* What is here no more, and elsewhere neither, is free. */
void allocation_collect(void)
{
	QUEUE_FOREACH (link, &allocations) {
		struct allocation *allocation = queue_entry(link, struct allocation, link);

		if (allocation->handles > 0 || allocation->mappings > 0)
			continue;
		if (allocation->tail)
			munmap(allocation->tail, TAIL_BYTES);
		allocation->tail = NULL;
		allocation->fd = fd_close(allocation->fd);
		if (allocation->watch < 0 || flock(allocation->watch, LOCK_EX | LOCK_NB) == 0)
			allocation_free(allocation);
	}
}

static size_t used(int device)
{
	size_t bytes = 0;

	allocation_collect();
	QUEUE_FOREACH (link, &allocations) {
		const struct allocation *allocation = queue_entry(link, struct allocation, link);

		bytes += allocation->watch >= 0 && allocation->device == device ? allocation->bytes : 0;
	}
	return bytes;
}

struct allocation *allocation_find(driver_allocation handle)
{
	QUEUE_FOREACH (link, &allocations) {
		struct allocation *allocation = queue_entry(link, struct allocation, link);

		if ((driver_allocation)(uintptr_t)allocation == handle && allocation->handles > 0)
			return allocation;
	}
	return NULL;
}

static int map_tail(struct allocation *allocation)
{
	void *tail = mmap(NULL, TAIL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, allocation->fd,
			  (off_t)allocation->bytes);

	if (tail == MAP_FAILED)
		return -errno;
	allocation->tail = tail;
	return 0;
}

static int poison(const struct allocation *allocation)
{
	void *bytes = mmap(NULL, allocation->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, allocation->fd, 0);

	if (bytes == MAP_FAILED)
		return -errno;
	memset(bytes, POISON, allocation->bytes);
	munmap(bytes, allocation->bytes);
	return 0;
}

static int make_file(struct allocation *allocation)
{
	char path[64];

	allocation->fd = memfd_create("stand-in GPU memory", MFD_CLOEXEC);
	if (allocation->fd < 0 || ftruncate(allocation->fd, (off_t)(allocation->bytes + TAIL_BYTES)) < 0)
		return -errno;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", allocation->fd);
	allocation->watch = open(path, O_RDWR | O_CLOEXEC);
	if (allocation->watch < 0 || flock(allocation->fd, LOCK_SH) < 0)
		return -errno;
	if (poison(allocation) < 0 || map_tail(allocation) < 0)
		return -errno;
	race_table_init(&allocation->tail->table);
	allocation->tail->magic = MAGIC;
	return 0;
}

static struct allocation *allocation_new(size_t bytes, int device)
{
	struct allocation *allocation = calloc(1, sizeof(*allocation));

	if (!allocation)
		standin_abort("out of memory");
	allocation->fd = allocation->watch = -1;
	allocation->bytes = bytes;
	allocation->device = device;
	queue_push(&allocations, &allocation->link);
	return allocation;
}

bool allocation_is_whole(size_t bytes)
{
	return bytes > 0 && bytes % STANDIN_GRANULARITY == 0;
}

static bool is_kind(const struct driver_memory_kind *kind)
{
	return kind->type == DRIVER_PINNED && kind->location.type == DRIVER_ON_GPU && !kind->windows &&
	       (kind->handles == 0 || kind->handles == DRIVER_DESCRIPTOR);
}

int cuMemGetAllocationGranularity(size_t *ret_bytes, const struct driver_memory_kind *kind, int which)
{
	int error = standin_enter_gpu(__func__, kind->location.id);

	if (error == DRIVER_DONE && !is_kind(kind))
		error = DRIVER_INVALID_VALUE;
	if (error == DRIVER_DONE)
		*ret_bytes = STANDIN_GRANULARITY;
	return error;
}

int cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
	struct driver_context *context;
	int error = standin_enter_context(__func__, &context);

	if (error != DRIVER_DONE)
		return error;
	pthread_mutex_lock(&standin_lock);
	*ret_total = standin_bytes();
	*ret_free = *ret_total - used(standin_device(context));
	pthread_mutex_unlock(&standin_lock);
	return DRIVER_DONE;
}

static int create(driver_allocation *ret_allocation, size_t bytes, const struct driver_memory_kind *kind)
{
	struct allocation *allocation;

	if (!is_kind(kind) || !allocation_is_whole(bytes))
		return DRIVER_INVALID_VALUE;
	if (kind->handles != 0 && !script_number("STANDIN_DESCRIPTORS", 1))
		return DRIVER_NOT_SUPPORTED;
	if (bytes > standin_bytes() - used(kind->location.id))
		return DRIVER_OUT_OF_MEMORY;
	allocation = allocation_new(bytes, kind->location.id);
	if (make_file(allocation) < 0) {
		allocation_free(allocation);
		return DRIVER_OUT_OF_MEMORY;
	}
	allocation->handles = 1;
	*ret_allocation = (driver_allocation)(uintptr_t)allocation;
	return DRIVER_DONE;
}

int cuMemCreate(driver_allocation *ret_allocation, size_t bytes, const struct driver_memory_kind *kind,
		unsigned long long flags)
{
	int error = standin_enter_gpu(__func__, kind->location.id);

	pthread_mutex_lock(&standin_lock);
	if (error == DRIVER_DONE)
		error = create(ret_allocation, bytes, kind);
	pthread_mutex_unlock(&standin_lock);
	return error;
}

int cuMemRelease(driver_allocation handle)
{
	int error = standin_enter(__func__);
	struct allocation *allocation;

	pthread_mutex_lock(&standin_lock);
	allocation = allocation_find(handle);
	if (error == DRIVER_DONE && !allocation)
		error = DRIVER_INVALID_VALUE;
	if (error == DRIVER_DONE)
		allocation->handles--;
	allocation_collect();
	pthread_mutex_unlock(&standin_lock);
	return error;
}

int cuMemExportToShareableHandle(void *ret_fd, driver_allocation handle, int type, unsigned long long flags)
{
	int error = standin_enter(__func__), fd = -1;
	const struct allocation *allocation;

	pthread_mutex_lock(&standin_lock);
	allocation = allocation_find(handle);
	if (error == DRIVER_DONE && (!allocation || type != DRIVER_DESCRIPTOR))
		error = DRIVER_INVALID_VALUE;
	if (error == DRIVER_DONE)
		fd = fcntl(allocation->fd, F_DUPFD_CLOEXEC, 0);
	pthread_mutex_unlock(&standin_lock);
	if (error == DRIVER_DONE && fd < 0)
		error = DRIVER_UNKNOWN;
	if (error == DRIVER_DONE)
		*(int *)ret_fd = fd;
	return error;
}

static int import(driver_allocation *ret_allocation, int fd)
{
	struct allocation *allocation;
	struct stat status;

	if (fstat(fd, &status) < 0 || status.st_size <= (off_t)TAIL_BYTES ||
	    !allocation_is_whole((size_t)status.st_size - TAIL_BYTES))
		return DRIVER_INVALID_VALUE;
	allocation = allocation_new((size_t)status.st_size - TAIL_BYTES, -1);
	allocation->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (allocation->fd < 0 || map_tail(allocation) < 0 || allocation->tail->magic != MAGIC) {
		allocation_collect();
		return DRIVER_INVALID_VALUE;
	}
	allocation->handles = 1;
	*ret_allocation = (driver_allocation)(uintptr_t)allocation;
	return DRIVER_DONE;
}

int cuMemImportFromShareableHandle(driver_allocation *ret_allocation, void *fd, int type)
{
	int error = standin_enter(__func__);

	pthread_mutex_lock(&standin_lock);
	if (error == DRIVER_DONE && type != DRIVER_DESCRIPTOR)
		error = DRIVER_INVALID_VALUE;
	if (error == DRIVER_DONE)
		error = import(ret_allocation, (int)(intptr_t)fd);
	pthread_mutex_unlock(&standin_lock);
	return error;
}

void memory_see(const struct race_clock *clock)
{
	QUEUE_FOREACH (link, &allocations) {
		const struct allocation *allocation = queue_entry(link, struct allocation, link);

		if (allocation->tail)
			race_see(&allocation->tail->table, clock);
	}
}
