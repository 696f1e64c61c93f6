/* NVML: what NVIDIA's driver knows of a GPU beside computing: temperature, power, energy. The calls of it
 * that we use, and its numbers, as its reference has them. */
#ifndef TIERD_OFFLOAD_CUDA_NVML_H
#define TIERD_OFFLOAD_CUDA_NVML_H

#include "common/dynamic_library.h"

enum nvml_error {
	NVML_DONE = 0,
	NVML_NOT_SUPPORTED = 3, /* by this GPU, or for a slice of one */
};

#define NVML_CORE 0 /* a sensor of temperature: that of the chip */

/* In percent of the last interval that the driver has measured. */
struct nvml_utilization {
	unsigned kernels, memory; /* a kernel ran; memory was read or written */
};

struct nvml_memory {
	unsigned long long total, free, used; /* used: with what the driver keeps for itself */
};

struct nvml_device;

/* All return an error of NVML's, but for error_string. Any thread may call them; each may block. */
struct nvml {
	int (*init)(void);
	int (*shutdown)(void);
	const char *(*error_string)(int error);
	int (*version)(char *version, unsigned size);
	int (*device)(const char *uuid, struct nvml_device **ret_device);
	int (*utilization)(struct nvml_device *device, struct nvml_utilization *ret_utilization);
	int (*memory)(struct nvml_device *device, struct nvml_memory *ret_memory);
	int (*temperature)(struct nvml_device *device, int sensor, unsigned *ret_celsius);
	int (*power)(struct nvml_device *device, unsigned *ret_milliwatts);
	int (*energy)(struct nvml_device *device, unsigned long long *ret_millijoules);
};

/* Starts it. False: the library says why not. */
bool nvml_open(struct nvml *ret_nvml, struct dynamic_library *library);
/* As long as it is open the machine's GPUs have a user. */
void nvml_close(const struct nvml *nvml);

#endif
