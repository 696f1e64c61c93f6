#include "offload/cuda/gpu_sensors.h"

#include <stdio.h>

/* Goes on after an error: each sensor is for itself. */
struct reading {
	const struct nvml *nvml;
	const struct gpu *gpu;
	struct gpu_sensors_problem *problem;
	bool has_failed;
};

static bool works(struct reading *reading, const char *what, int error)
{
	if (error == NVML_DONE)
		return true;
	if (error != NVML_NOT_SUPPORTED && !reading->has_failed) {
		snprintf(reading->problem->text, sizeof(reading->problem->text),
			 "NVML does not tell the %s of the GPU at %s: %s (error %d)", what, reading->gpu->bus,
			 reading->nvml->error_string(error), error);
		reading->has_failed = true;
	}
	return false;
}

static void read_all(struct reading *reading, struct nvml_device *device, struct gpu_sensors *sensors)
{
	const struct nvml *nvml = reading->nvml;
	struct nvml_utilization utilization;
	struct nvml_memory memory;
	unsigned celsius, milliwatts;
	unsigned long long millijoules;

	if (works(reading, "utilization", nvml->utilization(device, &utilization)))
		sensors->busy_percent = utilization.kernels;
	if (works(reading, "memory", nvml->memory(device, &memory))) {
		sensors->used_bytes = memory.used;
		sensors->total_bytes = memory.total;
	}
	if (works(reading, "temperature", nvml->temperature(device, NVML_CORE, &celsius)))
		sensors->temperature_celsius = celsius;
	if (works(reading, "power", nvml->power(device, &milliwatts)))
		sensors->power_milliwatts = milliwatts;
	if (works(reading, "energy", nvml->energy(device, &millijoules)))
		sensors->energy_millijoules = millijoules;
}

bool gpu_sensors_read(const struct nvml *nvml, const struct gpu *gpu, struct gpu_sensors *ret_sensors,
		      struct gpu_sensors_problem *ret_problem)
{
	struct reading reading = { .nvml = nvml, .gpu = gpu, .problem = ret_problem };
	struct nvml_device *device;
	char uuid[GPU_UUID_TEXT];

	*ret_sensors = (struct gpu_sensors)GPU_SENSORS_UNKNOWN;
	/* A handle would not outlive a driver that is loaded again. */
	if (works(&reading, "sensors", nvml->device(gpu_uuid_text(gpu, uuid), &device)))
		read_all(&reading, device, ret_sensors);
	return !reading.has_failed;
}
