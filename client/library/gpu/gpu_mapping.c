#include <errno.h>
#include <stdlib.h>

#include "client/library/connection/message.h"
#include "client/library/gpu/gpu_own.h"
#include "common/queue.h"

struct gpu_mapping {
	struct gpu *gpu;
	uint64_t bytes;
	driver_allocation allocation;
	driver_address address;
	bool is_imported, is_reserved, is_mapped;
	struct driver_event *ended; /* behind all that has used it */
	struct driver_event **events;
	size_t event_count;
	struct queue link;
};

/* Those that were freed, and may still be used by the GPU. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct queue leaving = { &leaving, &leaving };

/* ---- Making, in the GPU's context ---- */

static int map(struct gpu_mapping *mapping, int fd)
{
	const struct driver *driver = &mapping->gpu->driver;
	const struct driver_access access = { { DRIVER_ON_GPU, mapping->gpu->device }, DRIVER_READ_WRITE };
	int error = driver->memory_import(&mapping->allocation, (void *)(uintptr_t)fd, DRIVER_DESCRIPTOR);

	mapping->is_imported = error == DRIVER_DONE;
	if (error == DRIVER_DONE)
		error = driver->address_reserve(&mapping->address, mapping->bytes, 0, 0, 0);
	mapping->is_reserved = mapping->is_imported && error == DRIVER_DONE;
	if (error == DRIVER_DONE)
		error = driver->memory_map(mapping->address, mapping->bytes, 0, mapping->allocation, 0);
	mapping->is_mapped = mapping->is_reserved && error == DRIVER_DONE;
	if (error == DRIVER_DONE)
		error = driver->memory_allow(mapping->address, mapping->bytes, &access, 1);
	return error == DRIVER_DONE ? 0 : gpu_fail(mapping->gpu, error, "mapping memory of tierd's");
}

static int open_events(struct gpu_mapping *mapping, const struct driver_event_handle *handles, size_t count)
{
	const struct driver *driver = &mapping->gpu->driver;
	int error = driver->event_create(&mapping->ended, DRIVER_NO_TIMES);

	for (; mapping->event_count < count && error == DRIVER_DONE; mapping->event_count++) {
		error = driver->event_import(&mapping->events[mapping->event_count],
					     handles[mapping->event_count]);
		if (error != DRIVER_DONE)
			break;
	}
	return error == DRIVER_DONE ? 0 : gpu_fail(mapping->gpu, error, "opening events of tierd's");
}

/* ---- Unmaking ---- */

static void unmap(struct gpu_mapping *mapping)
{
	const struct driver *driver = &mapping->gpu->driver;

	for (size_t i = 0; i < mapping->event_count; i++)
		(void)driver->event_destroy(mapping->events[i]);
	if (mapping->ended)
		(void)driver->event_destroy(mapping->ended);
	if (mapping->is_mapped)
		(void)driver->memory_unmap(mapping->address, mapping->bytes);
	if (mapping->is_reserved)
		(void)driver->address_free(mapping->address, mapping->bytes);
	if (mapping->is_imported)
		(void)driver->memory_release(mapping->allocation);
}

static void end(struct gpu_mapping *mapping, bool is_child)
{
	struct driver_context *previous;

	if (!is_child && gpu_enter(mapping->gpu, &previous) == 0) {
		unmap(mapping);
		gpu_exit(mapping->gpu, previous);
	}
	gpu_free(mapping->gpu, is_child);
	free(mapping->events);
	free(mapping);
}

/* A GPU that is lost does nothing any more. */
static bool is_used(const struct gpu_mapping *mapping)
{
	struct driver_context *previous;
	int error;

	if (gpu_enter(mapping->gpu, &previous) < 0)
		return false;
	error = mapping->gpu->driver.event_query(mapping->ended);
	gpu_exit(mapping->gpu, previous);
	return error == DRIVER_NOT_READY;
}

void gpu_mapping_collect(void)
{
	pthread_mutex_lock(&lock);
	QUEUE_FOREACH (link, &leaving) {
		struct gpu_mapping *mapping = queue_entry(link, struct gpu_mapping, link);

		if (is_used(mapping))
			continue;
		queue_remove(&mapping->link);
		end(mapping, false);
	}
	pthread_mutex_unlock(&lock);
}

static void leave(struct gpu_mapping *mapping)
{
	struct driver_context *previous;

	if (gpu_enter(mapping->gpu, &previous) == 0) {
		(void)gpu_record_all(mapping->gpu, mapping->ended);
		gpu_exit(mapping->gpu, previous);
	}
	pthread_mutex_lock(&lock);
	queue_push(&leaving, &mapping->link);
	pthread_mutex_unlock(&lock);
	gpu_mapping_collect();
}

/* ---- The handle ---- */

static int make(struct gpu_mapping *mapping, int fd, const struct driver_event_handle *handles, size_t count)
{
	struct driver_context *previous;
	int r = gpu_enter(mapping->gpu, &previous);

	if (r < 0)
		return r;
	r = map(mapping, fd);
	if (r == 0)
		r = open_events(mapping, handles, count);
	gpu_exit(mapping->gpu, previous);
	return r;
}

int gpu_mapping_new(struct gpu *gpu, int fd, uint64_t bytes, const struct driver_event_handle *handles,
		    size_t count, struct gpu_mapping **ret_mapping)
{
	struct gpu_mapping *mapping = calloc(1, sizeof(*mapping));
	int r;

	if (!mapping)
		return message_fail_memory();
	mapping->events = calloc(count + 1, sizeof(struct driver_event *));
	if (!mapping->events) {
		free(mapping);
		return message_fail_memory();
	}
	mapping->gpu = gpu;
	mapping->bytes = bytes;
	atomic_fetch_add(&gpu->holders, 1);
	r = make(mapping, fd, handles, count);
	if (r < 0)
		end(mapping, false);
	else
		*ret_mapping = mapping;
	return r;
}

struct gpu_mapping *gpu_mapping_free(struct gpu_mapping *mapping, bool is_child)
{
	if (mapping && is_child)
		end(mapping, true);
	else if (mapping)
		leave(mapping);
	return NULL;
}

char *gpu_mapping_address(const struct gpu_mapping *mapping)
{
	return (char *)(uintptr_t)mapping->address;
}

size_t gpu_mapping_events(const struct gpu_mapping *mapping)
{
	return mapping->event_count;
}

int gpu_mapping_wait(const struct gpu_mapping *mapping, size_t event, struct driver_stream *stream)
{
	struct driver_context *previous;
	int r = gpu_enter(mapping->gpu, &previous), error;

	if (r < 0)
		return r;
	error = mapping->gpu->driver.stream_wait(stream, mapping->events[event], 0);
	gpu_exit(mapping->gpu, previous);
	return error == DRIVER_DONE
		       ? 0
		       : gpu_fail(mapping->gpu, error,
				  "having a stream wait for a copy, which must be one of this GPU's "
				  "own context");
}
