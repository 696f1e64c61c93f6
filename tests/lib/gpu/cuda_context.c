/* Contexts of the stand-in for the GPU driver: one for each GPU, as those of CUDA's runtime are.
 * $STANDIN_BYTES is the memory of each GPU. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/gpu/standin.h"

pthread_mutex_t standin_lock = PTHREAD_MUTEX_INITIALIZER;
pthread_cond_t standin_changed = PTHREAD_COND_INITIALIZER;

struct driver_context {
	atomic_uint holders;
	atomic_int lost; /* the error that every call gets from now on */
};

static struct driver_context contexts[STANDIN_GPUS_MAX];
static _Thread_local struct driver_context *current;

void standin_abort(const char *format, ...)
{
	char text[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	fprintf(stderr, "stand-in for the GPU driver: %s\n", text);
	abort();
}

size_t standin_bytes(void)
{
	return (size_t)script_number("STANDIN_BYTES", 1L << 30);
}

int standin_device(const struct driver_context *context)
{
	return (int)(context - contexts);
}

int standin_lost(int device)
{
	return contexts[device].lost;
}

void standin_lose(int device, int error)
{
	int none = DRIVER_DONE;

	atomic_compare_exchange_strong(&contexts[device].lost, &none, error);
	pthread_mutex_lock(&standin_lock);
	pthread_cond_broadcast(&standin_changed);
	pthread_mutex_unlock(&standin_lock);
}

static int enter(const char *call, int device)
{
	struct script_failure failure = script_failure(call);
	int count = standin_gpus();

	/* The driver would wait for itself. */
	if (stream_current())
		standin_abort("a host function calls %s", call);
	if (failure.is_lasting)
		standin_lose(device < 0 ? 0 : device, failure.error);
	if (failure.error != DRIVER_DONE)
		return failure.error;
	if (count < 0)
		return DRIVER_NOT_INITIALIZED;
	return device >= count ? DRIVER_INVALID_DEVICE : DRIVER_DONE;
}

int standin_enter(const char *call)
{
	int error = enter(call, current ? standin_device(current) : -1);

	return error == DRIVER_DONE && current ? current->lost : error;
}

int standin_enter_device(const char *call, int device)
{
	int error = enter(call, device);

	return error == DRIVER_DONE && device < 0 ? DRIVER_INVALID_DEVICE : error;
}

int standin_enter_gpu(const char *call, int device)
{
	int error = standin_enter_device(call, device);

	return error == DRIVER_DONE ? standin_lost(device) : error;
}

int standin_enter_context(const char *call, struct driver_context **ret_context)
{
	int error = standin_enter(call);

	if (error == DRIVER_DONE && !current)
		error = DRIVER_INVALID_CONTEXT;
	if (error == DRIVER_DONE && current->holders == 0)
		error = DRIVER_CONTEXT_IS_DESTROYED;
	if (error == DRIVER_DONE)
		*ret_context = current;
	return error;
}

int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags)
{
	return standin_enter_gpu(__func__, device);
}

int cuDevicePrimaryCtxRetain(struct driver_context **ret_context, int device)
{
	int error = standin_enter_gpu(__func__, device);

	if (error != DRIVER_DONE)
		return error;
	pthread_mutex_lock(&standin_lock);
	contexts[device].holders++;
	pthread_mutex_unlock(&standin_lock);
	*ret_context = &contexts[device];
	return DRIVER_DONE;
}

static unsigned let_go(struct driver_context *context)
{
	unsigned holders;

	pthread_mutex_lock(&standin_lock);
	holders = context->holders;
	context->holders -= holders > 0;
	pthread_mutex_unlock(&standin_lock);
	return holders;
}

/* A GPU that was lost comes back with a new context. */
int cuDevicePrimaryCtxRelease_v2(int device)
{
	int error = enter(__func__, device);
	unsigned holders;

	if (error != DRIVER_DONE)
		return error;
	holders = let_go(&contexts[device]);
	if (holders == 0)
		return DRIVER_INVALID_CONTEXT;
	if (holders > 1)
		return DRIVER_DONE;
	streams_end(&contexts[device]);
	host_end(&contexts[device]);
	modules_end(&contexts[device]);
	contexts[device].lost = DRIVER_DONE;
	return DRIVER_DONE;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *ret_flags, int *ret_is_there)
{
	int error = standin_enter_device(__func__, device);

	if (error != DRIVER_DONE)
		return error;
	*ret_flags = 0;
	*ret_is_there = contexts[device].holders > 0;
	return DRIVER_DONE;
}

int cuCtxSetCurrent(struct driver_context *context)
{
	int error = enter(__func__, context ? standin_device(context) : -1);

	if (error == DRIVER_DONE)
		current = context;
	return error;
}

int cuCtxGetCurrent(struct driver_context **ret_context)
{
	int error = standin_enter(__func__);

	if (error == DRIVER_DONE)
		*ret_context = current;
	return error;
}

int cuCtxGetDevice(int *ret_device)
{
	struct driver_context *context;
	int error = standin_enter_context(__func__, &context);

	if (error == DRIVER_DONE)
		*ret_device = standin_device(context);
	return error;
}

int cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest)
{
	struct driver_context *context;
	int error = standin_enter_context(__func__, &context);

	if (error == DRIVER_DONE) {
		*ret_least = 0;
		*ret_greatest = -5;
	}
	return error;
}
