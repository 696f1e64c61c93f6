/* Memory of the stand-in for the GPU driver as most programs ask for it: made of what processes can share, so
 * that whatever finds mistakes there finds them here. */
#include <stdlib.h>

#include "tests/lib/gpu/cuda_calls.h"
#include "tests/lib/gpu/standin.h"

struct plain {
	driver_address address;
	size_t bytes;
	struct queue link;
};

static struct queue plains = { &plains, &plains };

static int map(driver_address address, size_t bytes, int device)
{
	const struct driver_memory_kind kind = { .type = DRIVER_PINNED,
						 .handles = DRIVER_DESCRIPTOR,
						 .location = { DRIVER_ON_GPU, device } };
	const struct driver_access access = { kind.location, DRIVER_READ_WRITE };
	driver_allocation allocation;
	int error = cuMemCreate(&allocation, bytes, &kind, 0);

	if (error != DRIVER_DONE)
		return error;
	error = cuMemMap(address, bytes, 0, allocation, 0);
	(void)cuMemRelease(allocation);
	return error == DRIVER_DONE ? cuMemSetAccess(address, bytes, &access, 1) : error;
}

int cuMemAlloc_v2(driver_address *ret_address, size_t bytes)
{
	struct driver_context *context;
	int error = standin_enter_context(__func__, &context);
	struct plain *plain;

	if (error == DRIVER_DONE && bytes == 0)
		error = DRIVER_INVALID_VALUE;
	if (error != DRIVER_DONE)
		return error;
	plain = calloc(1, sizeof(*plain));
	if (!plain)
		standin_abort("out of memory");
	plain->bytes = (bytes + STANDIN_GRANULARITY - 1) / STANDIN_GRANULARITY * STANDIN_GRANULARITY;
	error = cuMemAddressReserve(&plain->address, plain->bytes, 0, 0, 0);
	if (error == DRIVER_DONE)
		error = map(plain->address, plain->bytes, standin_device(context));
	if (error != DRIVER_DONE) {
		free(plain);
		return error;
	}
	*ret_address = plain->address;
	pthread_mutex_lock(&standin_lock);
	queue_push(&plains, &plain->link);
	pthread_mutex_unlock(&standin_lock);
	return DRIVER_DONE;
}

static struct plain *take(driver_address address)
{
	struct plain *found = NULL;

	pthread_mutex_lock(&standin_lock);
	QUEUE_FOREACH (link, &plains)
		if (queue_entry(link, struct plain, link)->address == address)
			found = queue_entry(link, struct plain, link);
	if (found)
		queue_remove(&found->link);
	pthread_mutex_unlock(&standin_lock);
	return found;
}

int cuMemFree_v2(driver_address address)
{
	struct driver_context *context;
	int error = standin_enter_context(__func__, &context);
	struct plain *plain = error == DRIVER_DONE ? take(address) : NULL;

	if (!plain)
		return error == DRIVER_DONE ? DRIVER_INVALID_VALUE : error;
	error = cuMemUnmap(plain->address, plain->bytes);
	free(plain);
	return error;
}
