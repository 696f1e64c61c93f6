/* What goes to a GPU of an update and of a norm, and what is launched for it. */
#ifndef TIERD_OFFLOAD_CUDA_GPU_UPDATE_PRIVATE_H
#define TIERD_OFFLOAD_CUDA_GPU_UPDATE_PRIVATE_H

#include "offload/cuda/gpu_update.h"

extern const struct gpu_pass_kind gpu_update_kind, gpu_norm_kind;

#endif
