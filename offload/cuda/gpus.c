#include "offload/cuda/gpus.h"

#include <stdio.h>
#include <string.h>

#include "offload/cuda/driver.h"
#include "offload/cuda/nvml.h"

/* Reads attributes until one fails. */
struct reading {
	const struct driver *driver;
	int device;
	int error;
};

static int attribute(struct reading *reading, enum driver_attribute which)
{
	int value = 0;

	if (reading->error == DRIVER_DONE)
		reading->error = reading->driver->device_attribute(&value, which, reading->device);
	return value;
}

static int read_gpu(const struct driver *driver, int ordinal, struct gpu *ret_gpu)
{
	struct reading reading = { .driver = driver };
	struct gpu gpu = { 0 };
	size_t bytes = 0;
	int domain, bus, slot;

	reading.error = driver->device(&reading.device, ordinal);
	if (reading.error == DRIVER_DONE)
		reading.error = driver->device_name(gpu.name, sizeof(gpu.name), reading.device);
	if (reading.error == DRIVER_DONE)
		reading.error = driver->device_uuid(&gpu.uuid, reading.device);
	if (reading.error == DRIVER_DONE)
		reading.error = driver->device_bytes(&bytes, reading.device);
	domain = attribute(&reading, DRIVER_PCI_DOMAIN);
	bus = attribute(&reading, DRIVER_PCI_BUS);
	slot = attribute(&reading, DRIVER_PCI_DEVICE);
	snprintf(gpu.bus, sizeof(gpu.bus), "%04x:%02x:%02x.0", (unsigned)domain & 0xffff,
		 (unsigned)bus & 0xff, (unsigned)slot & 0xff);
	gpu.bytes = bytes;
	gpu.is_slice = strstr(gpu.name, " MIG ");
	gpu.capability_major = attribute(&reading, DRIVER_CAPABILITY_MAJOR);
	gpu.capability_minor = attribute(&reading, DRIVER_CAPABILITY_MINOR);
	gpu.shares_memory =
		attribute(&reading, DRIVER_HAS_VIRTUAL_MEMORY) && attribute(&reading, DRIVER_HAS_DESCRIPTORS);
	gpu.is_prohibited = attribute(&reading, DRIVER_COMPUTE_MODE) == DRIVER_PROHIBITED;
	if (reading.error == DRIVER_DONE)
		*ret_gpu = gpu;
	return reading.error;
}

void gpus_find(struct gpus *ret_gpus)
{
	struct driver driver;
	int count = 0, error;

	memset(ret_gpus, 0, sizeof(*ret_gpus));
	if (!driver_open(&driver, &ret_gpus->driver))
		return;
	error = driver.device_count(&count);
	for (int i = 0; error == DRIVER_DONE && i < count && i < GPUS_MAX; i++) {
		error = read_gpu(&driver, i, &ret_gpus->gpus[i]);
		ret_gpus->count += error == DRIVER_DONE;
	}
	if (error != DRIVER_DONE)
		(void)dynamic_library_refuse(&ret_gpus->driver, "GPU %u cannot be read: %s (error %d)",
					     ret_gpus->count, driver_text(&driver, error), error);
}

void gpus_find_nvml(struct dynamic_library *ret_library)
{
	struct nvml nvml;

	memset(ret_library, 0, sizeof(*ret_library));
	if (nvml_open(&nvml, ret_library))
		nvml_close(&nvml);
}

const char *gpu_uuid_text(const struct gpu *gpu, char text[GPU_UUID_TEXT])
{
	size_t used = (size_t)snprintf(text, GPU_UUID_TEXT, gpu->is_slice ? "MIG" : "GPU");

	for (size_t i = 0; i < sizeof(gpu->uuid.bytes); i++)
		used += (size_t)snprintf(text + used, GPU_UUID_TEXT - used, "%s%02x",
					 i == 0 || (i >= 4 && i <= 10 && i % 2 == 0) ? "-" : "",
					 (unsigned char)gpu->uuid.bytes[i]);
	return text;
}
