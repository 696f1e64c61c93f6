/* The driver's calls as functions, which find those of the real driver: in its stand-in's place, so that unit
 * tests run on a GPU unchanged. */
#include <stdio.h>
#include <stdlib.h>
#include <dlfcn.h>
#include <grp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/gpu/hardware.h"
#include "tests/lib/gpu/cuda_calls.h"

/* What a stream is held for at most. */
#define HOLD_NS UINT64_C(20000000000)

static void become(uid_t user)
{
	if (setgroups(0, NULL) == 0 && setgid(user) == 0 && setuid(user) == 0 &&
	    prctl(PR_SET_DUMPABLE, 1) == 0)
		return;
	perror("another user");
	exit(1);
}

/* Before main(): who uses this wants a GPU, and may be another user from the start. */
__attribute__((constructor)) static void look_for_it(void)
{
	const char *user = getenv("TEST_USER"), *why;

	if (user)
		become((uid_t)atoi(user));
	why = hardware_find();
	if (!why)
		return;
	printf("skipped: %s\n", why);
	exit(77);
}

static void *find(const char *name)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	void *function = library ? dlsym(library, name) : NULL;

	if (!function) {
		fprintf(stderr, "there is no %s: %s\n", name, dlerror());
		exit(1);
	}
	return function;
}

#define CALL(name, ...) ((__typeof__(&name))find(#name))(__VA_ARGS__)

int cuInit(unsigned flags)
{
	return CALL(cuInit, flags);
}

int cuDevicePrimaryCtxRetain(struct driver_context **ret_context, int device)
{
	return CALL(cuDevicePrimaryCtxRetain, ret_context, device);
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	return CALL(cuDevicePrimaryCtxRelease_v2, device);
}

int cuCtxSetCurrent(struct driver_context *context)
{
	return CALL(cuCtxSetCurrent, context);
}

int cuMemGetInfo_v2(size_t *ret_free, size_t *ret_total)
{
	return CALL(cuMemGetInfo_v2, ret_free, ret_total);
}

int cuMemImportFromShareableHandle(driver_allocation *ret_allocation, void *fd, int type)
{
	return CALL(cuMemImportFromShareableHandle, ret_allocation, fd, type);
}

int cuMemAddressReserve(driver_address *ret_address, size_t bytes, size_t alignment, driver_address wish,
			unsigned long long flags)
{
	return CALL(cuMemAddressReserve, ret_address, bytes, alignment, wish, flags);
}

int cuMemMap(driver_address address, size_t bytes, size_t offset, driver_allocation allocation,
	     unsigned long long flags)
{
	return CALL(cuMemMap, address, bytes, offset, allocation, flags);
}

int cuMemSetAccess(driver_address address, size_t bytes, const struct driver_access *accesses, size_t count)
{
	return CALL(cuMemSetAccess, address, bytes, accesses, count);
}

int cuMemHostRegister_v2(void *base, size_t bytes, unsigned flags)
{
	return CALL(cuMemHostRegister_v2, base, bytes, flags);
}

int cuMemHostGetDevicePointer_v2(driver_address *ret_address, void *base, unsigned flags)
{
	return CALL(cuMemHostGetDevicePointer_v2, ret_address, base, flags);
}

int cuStreamSynchronize(struct driver_stream *stream)
{
	return CALL(cuStreamSynchronize, stream);
}

int cuStreamWaitEvent(struct driver_stream *stream, struct driver_event *event, unsigned flags)
{
	return CALL(cuStreamWaitEvent, stream, event, flags);
}

int cuMemcpyAsync(driver_address to, driver_address from, size_t bytes, struct driver_stream *stream)
{
	return CALL(cuMemcpyAsync, to, from, bytes, stream);
}

int cuMemsetD8Async(driver_address to, unsigned char value, size_t bytes, struct driver_stream *stream)
{
	return CALL(cuMemsetD8Async, to, value, bytes, stream);
}

int cuEventCreate(struct driver_event **ret_event, unsigned flags)
{
	return CALL(cuEventCreate, ret_event, flags);
}

int cuEventRecord(struct driver_event *event, struct driver_stream *stream)
{
	return CALL(cuEventRecord, event, stream);
}

int cuIpcGetEventHandle(struct driver_event_handle *ret_handle, struct driver_event *event)
{
	return CALL(cuIpcGetEventHandle, ret_handle, event);
}

int cuIpcOpenEventHandle(struct driver_event **ret_event, struct driver_event_handle handle)
{
	return CALL(cuIpcOpenEventHandle, ret_event, handle);
}

/* ---- A stream that stands still ---- */

/* The last: a peer has one. */
static struct driver_stream *stream;
static uint32_t flags[1024] __attribute__((aligned(4096)));

int cuStreamCreate(struct driver_stream **ret_stream, unsigned stream_flags)
{
	int error = CALL(cuStreamCreate, ret_stream, stream_flags);

	if (error == DRIVER_DONE)
		stream = *ret_stream;
	return error;
}

void standin_hold(bool is_held)
{
	static struct hardware_spin spin = { .nanoseconds = HOLD_NS };

	if (spin.flags == 0)
		spin.flags = hardware_map(flags, sizeof(flags));
	*(volatile uint32_t *)&flags[1] = !is_held;
	if (is_held)
		hardware_begin_spin(&spin, stream);
}
