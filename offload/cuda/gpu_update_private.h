/* What the files of updates on a GPU share: what goes there of a pass, and what is launched for it. */
#ifndef TIERD_OFFLOAD_CUDA_GPU_UPDATE_PRIVATE_H
#define TIERD_OFFLOAD_CUDA_GPU_UPDATE_PRIVATE_H

#include "offload/cuda/gpu_update.h"

#define GPU_PARTS (OPTIMIZER_MAX_SLOTS + 3)

/* So many elements of an array, or the rest, take so many bytes. */
struct gpu_part {
	struct gpu_array array;
	uint64_t elements;
	size_t bytes;
	bool is_read, is_written;
};

struct gpu_chunk {
	uint64_t first, count;		/* elements */
	driver_address here[GPU_PARTS]; /* on the GPU; 0: there is none */
};

union gpu_arguments {
	struct update_arguments update;
	struct norm_arguments norm;
};

struct gpu_pass_kind {
	uint64_t grain; /* elements that chunks are multiples of */
	void (*find_parts)(const struct gpu_pass *pass, struct gpu_part parts[GPU_PARTS]);
	/* The kernel, and all of the step but its function. */
	const char *(*launch)(const struct gpu_pass *pass, const struct gpu_chunk *chunk,
			      union gpu_arguments *arguments, struct gpu_step *ret_step);
};

extern const struct gpu_pass_kind gpu_update_kind, gpu_norm_kind;

#endif
