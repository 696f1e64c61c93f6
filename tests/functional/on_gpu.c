#include "on_gpu.h"

#include <stdio.h>
#include <stdlib.h>

#include "offload/cuda/driver.h"

struct on_gpu {
	struct driver driver;
	struct driver_stream *stream;
	char *memory;
	size_t bytes;
};

static void must(int error, const char *what)
{
	if (error == DRIVER_DONE)
		return;
	fprintf(stderr, "FAILED: %s: error %d\n", what, error);
	exit(1);
}

struct on_gpu *on_gpu_new(int number, size_t bytes)
{
	struct dynamic_library library = { 0 };
	struct on_gpu *gpu = calloc(1, sizeof(*gpu));
	struct driver_context *context;
	int device;

	bytes = (bytes + 4095) / 4096 * 4096;
	if (!gpu || !(gpu->memory = aligned_alloc(4096, bytes)) || !driver_open(&gpu->driver, &library)) {
		fprintf(stderr, "FAILED: there is no GPU: %s\n", library.problem);
		exit(1);
	}
	gpu->bytes = bytes;
	must(gpu->driver.device(&device, number), "cuDeviceGet");
	must(gpu->driver.context_retain(&context, device), "cuDevicePrimaryCtxRetain");
	must(gpu->driver.context_enter(context), "cuCtxSetCurrent");
	must(gpu->driver.host_register(gpu->memory, bytes, 0), "cuMemHostRegister");
	must(gpu->driver.stream_create(&gpu->stream, DRIVER_NO_STREAM_0), "cuStreamCreate");
	return gpu;
}

void *on_gpu_stream(const struct on_gpu *gpu)
{
	return gpu->stream;
}

char *on_gpu_memory(const struct on_gpu *gpu)
{
	return gpu->memory;
}

void on_gpu_read(const struct on_gpu *gpu, size_t to, const void *from, size_t bytes)
{
	if (to > gpu->bytes || bytes > gpu->bytes - to) {
		fprintf(stderr, "FAILED: %zu bytes at %zu of %zu\n", bytes, to, gpu->bytes);
		exit(1);
	}
	must(gpu->driver.copy((uintptr_t)gpu->memory + to, (uintptr_t)from, bytes, gpu->stream),
	     "cuMemcpyAsync");
}

void on_gpu_wait(const struct on_gpu *gpu)
{
	must(gpu->driver.stream_synchronize(gpu->stream), "cuStreamSynchronize");
}
