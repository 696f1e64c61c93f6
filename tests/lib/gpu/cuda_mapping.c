/* Where GPU memory is mapped, in the stand-in for the GPU driver. Nothing is ever mapped again where
 * something was, so that a use of what is gone is found. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "common/cleanup.h"
#include "tests/lib/gpu/cuda_memory.h"

struct mapping {
	char *base;
	size_t bytes;
	struct allocation *allocation;
	uint64_t gpus; /* that may access it */
	struct queue link;
};

struct reservation {
	char *base;
	size_t bytes;
	struct queue link;
};

static struct queue mappings = { &mappings, &mappings };
static struct queue reservations = { &reservations, &reservations };

static bool overlaps(const char *base, size_t bytes, const char *other, size_t other_bytes)
{
	return base < other + other_bytes && other < base + bytes;
}

static bool contains(const char *base, size_t bytes, const char *other, size_t other_bytes)
{
	return base <= other && other + other_bytes <= base + bytes;
}

/* Until the process ends. */
static char *reserve(size_t bytes)
{
	size_t spare = bytes + STANDIN_GRANULARITY;
	char *base = mmap(NULL, spare, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (base == MAP_FAILED)
		return NULL;
	return base + (-(uintptr_t)base & (STANDIN_GRANULARITY - 1));
}

int cuMemAddressReserve(driver_address *ret_address, size_t bytes, size_t alignment, driver_address wish,
			unsigned long long flags)
{
	int error = standin_enter(__func__);
	struct reservation *reservation;

	if (error != DRIVER_DONE)
		return error;
	if (!allocation_is_whole(bytes) || alignment > STANDIN_GRANULARITY || flags != 0)
		return DRIVER_INVALID_VALUE;
	reservation = calloc(1, sizeof(*reservation));
	if (reservation)
		reservation->base = reserve(bytes);
	if (!reservation || !reservation->base) {
		free(reservation);
		return DRIVER_OUT_OF_MEMORY;
	}
	reservation->bytes = bytes;
	*ret_address = (uintptr_t)reservation->base;
	pthread_mutex_lock(&standin_lock);
	queue_push(&reservations, &reservation->link);
	pthread_mutex_unlock(&standin_lock);
	return DRIVER_DONE;
}

static struct reservation *find_reservation(const char *base, size_t bytes)
{
	QUEUE_FOREACH (link, &reservations) {
		struct reservation *reservation = queue_entry(link, struct reservation, link);

		if (contains(reservation->base, reservation->bytes, base, bytes))
			return reservation;
	}
	return NULL;
}

static struct mapping *find_mapping(const char *base, size_t bytes)
{
	QUEUE_FOREACH (link, &mappings) {
		struct mapping *mapping = queue_entry(link, struct mapping, link);

		if (overlaps(mapping->base, mapping->bytes, base, bytes))
			return mapping;
	}
	return NULL;
}

int cuMemAddressFree(driver_address address, size_t bytes)
{
	int error = standin_enter(__func__);
	char *base = (char *)(uintptr_t)address;
	const struct reservation *reservation;

	pthread_mutex_lock(&standin_lock);
	reservation = find_reservation(base, bytes);
	if (error == DRIVER_DONE && (!reservation || reservation->base != base ||
				     reservation->bytes != bytes || find_mapping(base, bytes)))
		error = DRIVER_INVALID_VALUE;
	pthread_mutex_unlock(&standin_lock);
	return error;
}

static int map(char *base, size_t bytes, struct allocation *allocation)
{
	struct mapping *mapping;

	if (!allocation || !allocation_is_whole(bytes) || bytes > allocation->bytes ||
	    !find_reservation(base, bytes) || find_mapping(base, bytes))
		return DRIVER_INVALID_VALUE;
	mapping = calloc(1, sizeof(*mapping));
	if (!mapping ||
	    mmap(base, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, allocation->fd, 0) == MAP_FAILED) {
		free(mapping);
		return DRIVER_OUT_OF_MEMORY;
	}
	mapping->base = base;
	mapping->bytes = bytes;
	mapping->allocation = allocation;
	allocation->mappings++;
	queue_push(&mappings, &mapping->link);
	return DRIVER_DONE;
}

int cuMemMap(driver_address address, size_t bytes, size_t offset, driver_allocation handle,
	     unsigned long long flags)
{
	int error = standin_enter(__func__);

	pthread_mutex_lock(&standin_lock);
	if (error == DRIVER_DONE && (offset != 0 || flags != 0))
		error = DRIVER_INVALID_VALUE;
	if (error == DRIVER_DONE)
		error = map((char *)(uintptr_t)address, bytes, allocation_find(handle));
	pthread_mutex_unlock(&standin_lock);
	return error;
}

static void unmap(struct mapping *mapping)
{
	if (!race_is_quiet(&mapping->allocation->tail->table, 0, mapping->bytes))
		standin_abort("GPU memory is unmapped while a stream may still use it");
	if (mmap(mapping->base, mapping->bytes, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		standin_abort("GPU memory cannot be unmapped: %s", strerror(errno));
	mapping->allocation->mappings--;
	queue_remove(&mapping->link);
	free(mapping);
}

int cuMemUnmap(driver_address address, size_t bytes)
{
	int error = standin_enter(__func__);
	char *base = (char *)(uintptr_t)address;
	struct mapping *mapping;

	pthread_mutex_lock(&standin_lock);
	mapping = find_mapping(base, bytes);
	if (error == DRIVER_DONE && (!mapping || mapping->base != base || mapping->bytes != bytes))
		error = DRIVER_INVALID_VALUE;
	if (error == DRIVER_DONE)
		unmap(mapping);
	allocation_collect();
	pthread_mutex_unlock(&standin_lock);
	return error;
}

static int allow(struct mapping *mapping, const struct driver_access *access)
{
	uint64_t gpu;

	if (access->location.type != DRIVER_ON_GPU || access->location.id < 0 ||
	    access->location.id >= standin_gpus() ||
	    (access->flags != 0 && access->flags != DRIVER_READ_WRITE))
		return DRIVER_INVALID_VALUE;
	if (mapping->allocation->device >= 0 && mapping->allocation->device != access->location.id &&
	    !script_number("STANDIN_PEERS", 1))
		return DRIVER_NOT_SUPPORTED;
	gpu = UINT64_C(1) << access->location.id;
	mapping->gpus = access->flags ? mapping->gpus | gpu : mapping->gpus & ~gpu;
	if (mprotect(mapping->base, mapping->bytes, mapping->gpus ? PROT_READ | PROT_WRITE : PROT_NONE) < 0)
		return DRIVER_UNKNOWN;
	return DRIVER_DONE;
}

int cuMemSetAccess(driver_address address, size_t bytes, const struct driver_access *accesses, size_t count)
{
	int error = standin_enter(__func__);
	char *base = (char *)(uintptr_t)address;
	struct mapping *mapping;

	pthread_mutex_lock(&standin_lock);
	mapping = find_mapping(base, bytes);
	if (error == DRIVER_DONE && (!mapping || mapping->base != base || mapping->bytes != bytes))
		error = DRIVER_INVALID_VALUE;
	for (size_t i = 0; error == DRIVER_DONE && i < count; i++)
		error = allow(mapping, &accesses[i]);
	pthread_mutex_unlock(&standin_lock);
	return error;
}

struct standin_place memory_find(driver_address address, size_t bytes, int device, const char *what)
{
	char *base = (char *)(uintptr_t)address;
	const struct mapping *mapping = find_mapping(base, 1);
	struct standin_place place = { .kind = PLACE_GPU };

	if (!mapping && find_reservation(base, 1))
		standin_abort("a %s uses GPU memory that is not mapped", what);
	if (!mapping)
		return host_find(address, bytes, device);
	if (!(mapping->gpus >> device & 1))
		standin_abort("a %s of GPU %d uses memory that is not mapped for it", what, device);
	place.table = &mapping->allocation->tail->table;
	place.offset = (size_t)(base - mapping->base);
	place.bytes = mapping->bytes - place.offset < bytes ? mapping->bytes - place.offset : bytes;
	return place;
}
