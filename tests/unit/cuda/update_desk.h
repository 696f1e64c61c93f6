/* What tests of updates on a GPU share: an engine, its kernels, and memory for state, here and there. */
#ifndef TIERD_TESTS_UNIT_CUDA_UPDATE_DESK_H
#define TIERD_TESTS_UNIT_CUDA_UPDATE_DESK_H

#include "offload/cuda/gpu_update.h"
#include "tests/unit/cuda/gpu_support.h"
#include "tests/unit/cuda/update_sample.h"

#define DESK_BYTES ((size_t)4 << 20)

struct desk {
	struct gpus gpus;
	struct gpu_engine *engine;
	struct driver_function *functions[KERNELS_COUNT];
	struct gpu_kernels kernels;
	struct gpu_memory chunks, state;
	unsigned char *host; /* pinned */
	struct gpu_pin pin;
	struct gpu_updater *updater;
};

/* chunk_bytes: of all chunks at once. */
void desk_open(struct desk *desk, size_t chunk_bytes);
void desk_close(struct desk *desk);

/* Which arrays are in the GPU's memory. */
enum place { IN_HOST, GRADIENT_ON_GPU, ON_GPU, PLACES };

/* A sample's arrays, at odd places. Samples of a desk that are there at once have different parts of it. */
struct test_update {
	struct gpu_update update;
	struct gpu_ending ending;
	const struct sample *sample;
	unsigned char *host[ARRAYS];
	driver_address there[ARRAYS];
};

void test_update_init(struct desk *desk, struct test_update *test, const struct sample *sample,
		      enum place place, size_t offset);
int test_update_wait(struct desk *desk, struct test_update *test);
/* That it has what the processor makes of it; and that nothing else has changed. */
void test_update_check(struct desk *desk, struct test_update *test);

#endif
