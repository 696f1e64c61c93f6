/* A stand-in for the GPU driver, libcuda.so.1: $STANDIN_GPUS GPUs, of which $STANDIN_MIG says whether they
 * are slices, $STANDIN_COMPUTE_MODE what they let processes do, and $STANDIN_PEERS whether they reach one
 * another's memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/lib/gpu/standin.h"

/* A forked child has to begin anew, which the driver does not let it do either. */
static atomic_int initialized_by;

/* As the driver counts: what $CUDA_VISIBLE_DEVICES does not list is not there. ret_places: of those that are,
 * their places in the machine. */
static int find_visible(int ret_places[STANDIN_GPUS_MAX])
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	int count = (int)script_number("STANDIN_GPUS", 1), listed = 0;

	if (count > STANDIN_GPUS_MAX)
		count = STANDIN_GPUS_MAX;
	for (int i = 0; i < count; i++)
		ret_places[i] = i;
	if (!visible)
		return count;
	for (const char *at = visible; listed < count && *at >= '0' && *at <= '9' && atoi(at) < count;
	     at += *at == ',') {
		ret_places[listed++] = atoi(at);
		at += strcspn(at, ",");
	}
	return listed;
}

static int count_visible(void)
{
	return find_visible((int[STANDIN_GPUS_MAX]){ 0 });
}

int standin_gpus(void)
{
	return initialized_by == getpid() ? count_visible() : -1;
}

int cuInit(unsigned flags)
{
	int error = script_error(__func__);

	if (error == DRIVER_DONE && flags != 0)
		error = DRIVER_INVALID_VALUE;
	if (error == DRIVER_DONE && count_visible() == 0)
		error = DRIVER_NO_DEVICE;
	if (error == DRIVER_DONE && initialized_by != 0 && initialized_by != getpid())
		error = DRIVER_NOT_INITIALIZED;
	if (error == DRIVER_DONE)
		initialized_by = getpid();
	return error;
}

int cuDriverGetVersion(int *ret_version)
{
	*ret_version = (int)script_number("STANDIN_CUDA", 13000);
	return script_error(__func__);
}

int cuGetErrorString(int error, const char **ret_text)
{
	static _Thread_local char text[64];

	snprintf(text, sizeof(text), "the stand-in's error %d", error);
	*ret_text = text;
	return script_error(__func__);
}

int cuDeviceGetCount(int *ret_count)
{
	*ret_count = count_visible();
	return standin_enter(__func__);
}

int cuDeviceGet(int *ret_device, int ordinal)
{
	*ret_device = ordinal;
	return standin_enter_device(__func__, ordinal);
}

int cuDeviceGetName(char *name, int size, int device)
{
	snprintf(name, (size_t)size, "stand-in%s", script_number("STANDIN_MIG", 0) ? " MIG 1g.10gb" : "");
	return standin_enter_device(__func__, device);
}

int cuDeviceTotalMem_v2(size_t *ret_bytes, int device)
{
	*ret_bytes = standin_bytes();
	return standin_enter_device(__func__, device);
}

int cuDeviceGetUuid_v2(struct driver_uuid *ret_uuid, int device)
{
	int error = standin_enter_gpu(__func__, device), places[STANDIN_GPUS_MAX];

	if (error != DRIVER_DONE)
		return error;
	(void)find_visible(places);
	*ret_uuid = (struct driver_uuid){ "stand-in GPU" };
	ret_uuid->bytes[15] = (char)places[device];
	return DRIVER_DONE;
}

int cuDeviceGetAttribute(int *ret_value, int attribute, int device)
{
	const int values[] = {
		[DRIVER_COMPUTE_MODE] = (int)script_number("STANDIN_COMPUTE_MODE", 0),
		[DRIVER_PCI_BUS] = 0x17 + device,
		[DRIVER_CAPABILITY_MAJOR] = (int)script_number("STANDIN_CAPABILITY", 9),
		[DRIVER_HAS_VIRTUAL_MEMORY] = 1,
		[DRIVER_HAS_DESCRIPTORS] = (int)script_number("STANDIN_DESCRIPTORS", 1),
	};

	if (attribute < 0 || (size_t)attribute >= sizeof(values) / sizeof(values[0]))
		return DRIVER_INVALID_VALUE;
	*ret_value = values[attribute];
	return standin_enter_device(__func__, device);
}

int cuDeviceCanAccessPeer(int *ret_reaches, int device, int peer)
{
	int error = standin_enter_device(__func__, device);

	if (error == DRIVER_DONE && (peer < 0 || peer >= count_visible()))
		error = DRIVER_INVALID_DEVICE;
	*ret_reaches = device != peer && script_number("STANDIN_PEERS", 1);
	return error;
}
