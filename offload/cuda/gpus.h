/* The GPUs of this machine, and what serves them: NVIDIA's driver, and NVML, which knows temperature and
 * energy.
 *
 * Both are looked for when the program runs. So no program of ours needs them to start, one binary serves
 * machines with and without GPUs, and the calls of theirs that we use are declared here: no toolkit is needed
 * to build. */
#ifndef TIERD_OFFLOAD_CUDA_GPUS_H
#define TIERD_OFFLOAD_CUDA_GPUS_H

#include <stdint.h>

#include "offload/cuda/driver.h"

#define GPUS_MAX 64

struct gpu {
	char name[128]; /* of a MIG slice: with its profile */
	char bus[16];	/* its PCI address, as lspci shows it */
	struct driver_uuid
		uuid; /* of the GPU, or of the slice: the same in all processes, whatever they see */
	uint64_t bytes;
	int capability_major, capability_minor;
	bool is_slice;	    /* by MIG, with a UUID of its own */
	bool shares_memory; /* one process's memory can be mapped by others, by descriptor */
	bool is_prohibited; /* its compute mode lets no process use it */
};

struct gpus {
	struct dynamic_library driver;
	unsigned count;
	struct gpu gpus[GPUS_MAX]; /* in the order of the driver */
};

void gpus_find(struct gpus *ret_gpus);
/* Whether there is NVML, which knows their sensors. Where a GPU is about to be lost it may take long. */
void gpus_find_nvml(struct dynamic_library *ret_library);

/* As nvidia-smi -L has it: "GPU-8-4-4-4-12 digits", of a slice "MIG-…". Returns the text. */
#define GPU_UUID_TEXT 41
const char *gpu_uuid_text(const struct gpu *gpu, char text[GPU_UUID_TEXT]);

#endif
