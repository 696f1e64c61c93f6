/* A stand-in for the GPU driver, libcuda.so.1: $STANDIN_GPUS GPUs, of which $STANDIN_MIG says whether they
 * are slices, and $STANDIN_COMPUTE_MODE what they let processes do. */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offload/cuda/driver.h"
#include "tests/lib/gpu/script.h"

#define INVALID_VALUE 1
#define NOT_INITIALIZED 3
#define INVALID_DEVICE 101

API int cuInit(unsigned flags);
API int cuDriverGetVersion(int *ret_version);
API int cuGetErrorString(int error, const char **ret_text);
API int cuDeviceGetCount(int *ret_count);
API int cuDeviceGet(int *ret_device, int ordinal);
API int cuDeviceGetName(char *name, int size, int device);
API int cuDeviceTotalMem_v2(size_t *ret_bytes, int device);
API int cuDeviceGetAttribute(int *ret_value, int attribute, int device);

static bool is_initialized;

/* As the driver counts: what $CUDA_VISIBLE_DEVICES does not list is not there. */
static int count_visible(void)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	int count = script_number("STANDIN_GPUS", 1), listed = 0;

	if (!visible)
		return count;
	for (const char *at = visible; *at >= '0' && *at <= '9' && atoi(at) < count; at += *at == ',') {
		listed++;
		at += strcspn(at, ",");
	}
	return listed;
}

static int refuse(const char *call, int device)
{
	int error = script_error(call);

	if (error != 0)
		return error;
	if (!is_initialized)
		return NOT_INITIALIZED;
	return device < 0 || device >= count_visible() ? INVALID_DEVICE : DRIVER_DONE;
}

int cuInit(unsigned flags)
{
	int error = script_error("cuInit");

	if (error == DRIVER_DONE && flags != 0)
		error = INVALID_VALUE;
	if (error == DRIVER_DONE && count_visible() == 0)
		error = DRIVER_NO_DEVICE;
	is_initialized = error == DRIVER_DONE;
	return error;
}

int cuDriverGetVersion(int *ret_version)
{
	*ret_version = script_number("STANDIN_CUDA", 13000);
	return script_error("cuDriverGetVersion");
}

int cuGetErrorString(int error, const char **ret_text)
{
	static char text[64];

	snprintf(text, sizeof(text), "the stand-in's error %d", error);
	*ret_text = text;
	return script_error("cuGetErrorString");
}

int cuDeviceGetCount(int *ret_count)
{
	int error = script_error("cuDeviceGetCount");

	*ret_count = count_visible();
	return error == DRIVER_DONE && !is_initialized ? NOT_INITIALIZED : error;
}

int cuDeviceGet(int *ret_device, int ordinal)
{
	*ret_device = ordinal;
	return refuse("cuDeviceGet", ordinal);
}

int cuDeviceGetName(char *name, int size, int device)
{
	snprintf(name, (size_t)size, "stand-in%s", script_number("STANDIN_MIG", 0) ? " MIG 1g.10gb" : "");
	return refuse("cuDeviceGetName", device);
}

int cuDeviceTotalMem_v2(size_t *ret_bytes, int device)
{
	*ret_bytes = (size_t)1 << 30;
	return refuse("cuDeviceTotalMem_v2", device);
}

int cuDeviceGetAttribute(int *ret_value, int attribute, int device)
{
	const int values[] = {
		[DRIVER_COMPUTE_MODE] = script_number("STANDIN_COMPUTE_MODE", 0),
		[DRIVER_PCI_BUS] = 0x17 + device,
		[DRIVER_CAPABILITY_MAJOR] = 9,
		[DRIVER_HAS_VIRTUAL_MEMORY] = 1,
		[DRIVER_HAS_DESCRIPTORS] = script_number("STANDIN_DESCRIPTORS", 1),
	};

	if (attribute < 0 || (size_t)attribute >= sizeof(values) / sizeof(values[0]))
		return INVALID_VALUE;
	*ret_value = values[attribute];
	return refuse("cuDeviceGetAttribute", device);
}
