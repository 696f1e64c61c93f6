/* NVML: what NVIDIA's driver knows of a GPU beside computing: temperature, power, energy. */
#ifndef TIERD_OFFLOAD_CUDA_NVML_H
#define TIERD_OFFLOAD_CUDA_NVML_H

#include "common/dynamic_library.h"

/* False: the library says why not. */
bool nvml_open(struct dynamic_library *library);

#endif
