/* What the sensors of a GPU say at a moment: how busy, warm and hungry it is. */
#ifndef TIERD_OFFLOAD_CUDA_GPU_SENSORS_H
#define TIERD_OFFLOAD_CUDA_GPU_SENSORS_H

#include "offload/cuda/gpus.h"
#include "offload/cuda/nvml.h"

/* Not every GPU has each sensor, and a MIG slice has few. */
#define GPU_SENSOR_UNKNOWN UINT64_MAX

struct gpu_sensors {
	uint64_t busy_percent;		  /* in so much of the last moment a kernel ran, of any process */
	uint64_t used_bytes, total_bytes; /* of its memory: used by any process */
	uint64_t temperature_celsius;
	uint64_t power_milliwatts;
	uint64_t energy_millijoules; /* since the driver was loaded */
};

#define GPU_SENSORS_UNKNOWN                                                                                  \
	{                                                                                                    \
		GPU_SENSOR_UNKNOWN, GPU_SENSOR_UNKNOWN, GPU_SENSOR_UNKNOWN, GPU_SENSOR_UNKNOWN,              \
			GPU_SENSOR_UNKNOWN, GPU_SENSOR_UNKNOWN                                               \
	}

struct gpu_sensors_problem {
	char text[256];
};

/* May block. False: a sensor could not be read that the GPU may have, and the problem says which first. */
bool gpu_sensors_read(const struct nvml *nvml, const struct gpu *gpu, struct gpu_sensors *ret_sensors,
		      struct gpu_sensors_problem *ret_problem);

#endif
