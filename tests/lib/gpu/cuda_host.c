/* Host memory that the stand-in for the GPU driver was told of. A registration goes with its context, in
 * which alone it is taken back. */
#include "common/cleanup.h"
#include "tests/lib/gpu/standin.h"

#define KNOWN_FLAGS 0xfu

struct registration {
	char *base;
	size_t bytes;
	struct driver_context *context;
	bool is_portable;
	struct race_table table;
	struct queue link;
};

static struct queue registrations = { &registrations, &registrations };

static struct registration *find(const char *base, size_t bytes)
{
	QUEUE_FOREACH (link, &registrations) {
		struct registration *registration = queue_entry(link, struct registration, link);

		if (base < registration->base + registration->bytes && registration->base < base + bytes)
			return registration;
	}
	return NULL;
}

int cuMemHostRegister_v2(void *base, size_t bytes, unsigned flags)
{
	struct driver_context *context;
	struct registration *registration;
	int error = standin_enter_context(__func__, &context);

	if (error != DRIVER_DONE)
		return error;
	if (!base || bytes == 0 || flags & ~KNOWN_FLAGS)
		return DRIVER_INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	registration = find(base, bytes) ? NULL : calloc(1, sizeof(*registration));
	if (registration) {
		registration->base = base;
		registration->bytes = bytes;
		registration->context = context;
		registration->is_portable = flags & DRIVER_PORTABLE;
		race_table_init(&registration->table);
		queue_push(&registrations, &registration->link);
	}
	pthread_mutex_unlock(&standin_lock);
	return registration ? DRIVER_DONE : DRIVER_ALREADY_REGISTERED;
}

static void forget(struct registration *registration)
{
	if (!race_is_quiet(&registration->table, 0, registration->bytes))
		standin_abort("host memory is unregistered while a stream may still use it");
	queue_remove(&registration->link);
	free(registration);
}

void host_end(const struct driver_context *context)
{
	pthread_mutex_lock(&standin_lock);
	QUEUE_FOREACH (link, &registrations) {
		struct registration *registration = queue_entry(link, struct registration, link);

		if (registration->context == context)
			forget(registration);
	}
	pthread_mutex_unlock(&standin_lock);
}

int cuMemHostUnregister(void *base)
{
	struct driver_context *context;
	struct registration *registration;
	int error = standin_enter_context(__func__, &context);

	if (error != DRIVER_DONE)
		return error;
	pthread_mutex_lock(&standin_lock);
	registration = find(base, 1);
	if (!registration || registration->base != base || registration->context != context)
		error = DRIVER_NOT_REGISTERED;
	else
		forget(registration);
	pthread_mutex_unlock(&standin_lock);
	return error;
}

/* A GPU has host memory at the same address. */
int cuMemHostGetDevicePointer_v2(driver_address *ret_address, void *base, unsigned flags)
{
	struct driver_context *context;
	int error = standin_enter_context(__func__, &context);

	pthread_mutex_lock(&standin_lock);
	if (error == DRIVER_DONE && !find(base, 1))
		error = DRIVER_INVALID_VALUE;
	pthread_mutex_unlock(&standin_lock);
	if (error == DRIVER_DONE)
		*ret_address = (uintptr_t)base;
	return error;
}

struct standin_place host_find(driver_address address, size_t bytes, int device)
{
	char *base = (char *)(uintptr_t)address;
	struct registration *registration = find(base, 1);
	struct standin_place place = { .kind = PLACE_PAGEABLE, .bytes = bytes };

	if (!registration) {
		registration = find(base, bytes);
		place.bytes = registration ? (size_t)(registration->base - base) : bytes;
		return place;
	}
	if (!registration->is_portable && standin_device(registration->context) != device)
		return place;
	place.kind = PLACE_PINNED;
	place.table = &registration->table;
	place.offset = (size_t)(base - registration->base);
	if (place.bytes > registration->bytes - place.offset)
		place.bytes = registration->bytes - place.offset;
	return place;
}

void host_see(const struct race_clock *clock)
{
	QUEUE_FOREACH (link, &registrations)
		race_see(&queue_entry(link, struct registration, link)->table, clock);
}
