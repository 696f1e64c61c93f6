/* A stand-in for NVML, libnvidia-ml.so.1: the sensors of the stand-in's GPUs stand still, but for what
 * $STANDIN_MILLIJOULES says. Slices have none but that of their memory. */
#include <stdio.h>
#include <string.h>

#include "offload/cuda/nvml.h"
#include "tests/lib/gpu/script.h"

#define INVALID_ARGUMENT 2
#define NOT_FOUND 6
#define UNINITIALIZED 1

API int nvmlInit_v2(void);
API int nvmlShutdown(void);
API const char *nvmlErrorString(int error);
API int nvmlSystemGetNVMLVersion(char *version, unsigned size);
API int nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_device **ret_device);
API int nvmlDeviceGetUtilizationRates(struct nvml_device *device, struct nvml_utilization *ret_utilization);
API int nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct nvml_memory *ret_memory);
API int nvmlDeviceGetTemperature(struct nvml_device *device, int sensor, unsigned *ret_celsius);
API int nvmlDeviceGetPowerUsage(struct nvml_device *device, unsigned *ret_milliwatts);
API int nvmlDeviceGetTotalEnergyConsumption(struct nvml_device *device, unsigned long long *ret_millijoules);

/* That have not been shut down. */
static int users;

static struct nvml_device {
	bool is_slice;
} device_of[2] = { { false }, { true } };

static int enter(const char *call)
{
	int error = script_error(call);

	return error == NVML_DONE && users == 0 ? UNINITIALIZED : error;
}

static int enter_sensor(const char *call, const struct nvml_device *device)
{
	int error = enter(call);

	return error == NVML_DONE && device->is_slice ? NVML_NOT_SUPPORTED : error;
}

int nvmlInit_v2(void)
{
	int error = script_error(__func__);

	users += error == NVML_DONE;
	return error;
}

int nvmlShutdown(void)
{
	int error = enter(__func__);

	users -= error == NVML_DONE;
	return error;
}

const char *nvmlErrorString(int error)
{
	return "the stand-in's error";
}

int nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
	snprintf(version, size, "13.0.0");
	return enter(__func__);
}

/* As the driver's stand-in names them: "stand-in GPU", three zeros and a number. */
int nvmlDeviceGetHandleByUUID(const char *uuid, struct nvml_device **ret_device)
{
	bool is_slice = script_number("STANDIN_MIG", 0) != 0;
	char expected[32];
	int error = enter(__func__);

	snprintf(expected, sizeof(expected), "%s-7374616e-642d-696e-2047-", is_slice ? "MIG" : "GPU");
	if (error == NVML_DONE && strncmp(uuid, expected, strlen(expected)) != 0)
		error = NOT_FOUND;
	*ret_device = &device_of[is_slice];
	return error;
}

int nvmlDeviceGetUtilizationRates(struct nvml_device *device, struct nvml_utilization *ret_utilization)
{
	*ret_utilization = (struct nvml_utilization){ .kernels = 37, .memory = 12 };
	return enter_sensor(__func__, device);
}

int nvmlDeviceGetMemoryInfo(struct nvml_device *device, struct nvml_memory *ret_memory)
{
	*ret_memory = (struct nvml_memory){ .total = 3UL << 30, .free = 1UL << 30, .used = 2UL << 30 };
	return enter(__func__);
}

int nvmlDeviceGetTemperature(struct nvml_device *device, int sensor, unsigned *ret_celsius)
{
	int error = enter_sensor(__func__, device);

	*ret_celsius = 51;
	return error == NVML_DONE && sensor != NVML_CORE ? INVALID_ARGUMENT : error;
}

int nvmlDeviceGetPowerUsage(struct nvml_device *device, unsigned *ret_milliwatts)
{
	*ret_milliwatts = 123456;
	return enter_sensor(__func__, device);
}

int nvmlDeviceGetTotalEnergyConsumption(struct nvml_device *device, unsigned long long *ret_millijoules)
{
	*ret_millijoules = (unsigned long long)script_number("STANDIN_MILLIJOULES", 5000000);
	return enter_sensor(__func__, device);
}
