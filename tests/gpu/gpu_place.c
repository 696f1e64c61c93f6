#include "tests/gpu/gpu_place.h"

#include <stdio.h>
#include <stdlib.h>

#include "collectives/cuda/sum.h"
#include "common/cleanup.h"
#include "offload/cuda/driver.h"
#include "offload/cuda/kernels/kernels.h"
#include "tests/gpu/gpu_calls.h"
#include "tests/gpu/hardware.h"

static struct driver driver;
static struct gpu_calls calls;
static struct driver_module *modules[2];
static struct driver_stream *streams[2];
static char name[128];

/* ---- Opening ---- */

static bool find_calls(struct dynamic_library *library)
{
	const struct dynamic_symbol symbols[] = {
		{ "cuMemAlloc_v2", &calls.allocate }, { "cuMemFree_v2", &calls.free },
		{ "cuMemcpyHtoD_v2", &calls.write },  { "cuMemcpyDtoH_v2", &calls.read },
		{ "cuMemcpyDtoD_v2", &calls.copy },   { "cuCtxSynchronize", &calls.wait },
	};

	return driver_open(&driver, library) &&
	       dynamic_library_open(library, "libcuda.so.1", symbols, ARRAY_LENGTH(symbols));
}

static int open_first(void)
{
	const void *images[] = { kernels_image(), sum_image() };
	struct driver_context *context;
	int device, error = driver.device(&device, 0);

	if (error == DRIVER_DONE)
		error = driver.device_name(name, sizeof(name), device);
	if (error == DRIVER_DONE)
		error = driver.context_retain(&context, device);
	if (error == DRIVER_DONE)
		error = driver.context_enter(context);
	for (size_t i = 0; error == DRIVER_DONE && i < ARRAY_LENGTH(images); i++)
		error = driver.module_load(&modules[i], images[i]);
	for (size_t i = 0; error == DRIVER_DONE && i < ARRAY_LENGTH(streams); i++)
		error = driver.stream_create(&streams[i], DRIVER_NO_STREAM_0);
	return error;
}

const char *place_open(void)
{
	static struct dynamic_library library;
	static char why[512];
	const char *missing = hardware_find();
	int error;

	if (missing)
		return missing;
	if (!kernels_image())
		return "no kernels: they were built without nvcc";
	if (!find_calls(&library)) {
		snprintf(why, sizeof(why), "no GPU: %.200s", library.problem);
		return why;
	}
	error = open_first();
	if (error == DRIVER_DONE)
		return NULL;
	snprintf(why, sizeof(why), "GPU %s does not take the kernels: %.100s", name,
		 driver_text(&driver, error));
	return why;
}

const void *place_image(void)
{
	return kernels_image();
}

const char *gpu_name(void)
{
	return name;
}

/* ---- Work ---- */

static void expect_done(const char *what, int error)
{
	if (error == DRIVER_DONE)
		return;
	fprintf(stderr, "GPU %s: %s: %s (error %d)\n", name, what, driver_text(&driver, error), error);
	exit(1);
}

void *place_allocate(size_t bytes)
{
	unsigned long long memory;

	expect_done("memory", calls.allocate(&memory, bytes));
	return (void *)(uintptr_t)memory;
}

void place_free(void *memory)
{
	expect_done("free", calls.free((uintptr_t)memory));
}

void place_write(void *to, const void *from, size_t bytes)
{
	expect_done("write", calls.write((uintptr_t)to, from, bytes));
}

void place_read(void *to, const void *from, size_t bytes)
{
	expect_done("read", calls.read(to, (uintptr_t)from, bytes));
}

void gpu_begin(const char *kernel, const void *arguments, uint32_t blocks, uint32_t threads)
{
	void *parameters[] = { (void *)arguments };
	struct driver_function *function = NULL;

	if (driver.module_function(&function, modules[0], kernel) != DRIVER_DONE)
		expect_done(kernel, driver.module_function(&function, modules[1], kernel));
	expect_done(kernel, driver.launch(function, blocks, 1, 1, threads, 1, 1, 0, NULL, parameters, NULL));
}

void gpu_begin_copy(void *to, const void *from, size_t bytes)
{
	expect_done("copy", calls.copy((uintptr_t)to, (uintptr_t)from, bytes));
}

void gpu_begin_both_ways(void *to_gpu, const void *from_host, size_t in_bytes, void *to_host,
			 const void *from_gpu, size_t back_bytes)
{
	expect_done("copy in", driver.copy((uintptr_t)to_gpu, (uintptr_t)from_host, in_bytes, streams[0]));
	expect_done("copy back",
		    driver.copy((uintptr_t)to_host, (uintptr_t)from_gpu, back_bytes, streams[1]));
}

void gpu_wait(void)
{
	expect_done("what it was asked for", calls.wait());
}

void place_run(const char *kernel, const void *arguments, uint32_t blocks, uint32_t threads)
{
	gpu_begin(kernel, arguments, blocks, threads);
	gpu_wait();
}
