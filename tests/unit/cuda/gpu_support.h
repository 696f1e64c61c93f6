/* What tests of the GPU engine share: engines on GPUs that the stand-in plays, and requests that remember how
 * they ended. */
#ifndef TIERD_TESTS_UNIT_CUDA_GPU_SUPPORT_H
#define TIERD_TESTS_UNIT_CUDA_GPU_SUPPORT_H

#include <sys/types.h>

#include "offload/cuda/gpu_program.h"
#include "tests/lib/gpu/cuda_calls.h"
#include "tests/lib/gpu/image.h"
#include "tests/lib/gpu/script.h"
#include "tests/unit/test.h"

#define MEMORY_BYTES ((size_t)24 << 20)

/* All of two GPUs of 64 MiB. */
struct gpu_fixture {
	struct gpus gpus;
	struct gpu_engine *engines[2];
	unsigned failures;
	char failure[256];
};

void gpu_fixture_open(struct gpu_fixture *fixture);
void gpu_fixture_close(struct gpu_fixture *fixture);

/* Of one request at a time. */
struct gpu_ending {
	unsigned count;
	int status;
};

/* A copy that remembers. */
struct test_copy {
	struct gpu_copy copy;
	struct gpu_ending ending;
	unsigned order; /* among all, from 1 */
	unsigned recorded;
};

void test_copy_init(struct test_copy *test, enum gpu_direction direction, driver_address to,
		    driver_address from, size_t bytes);
/* Reaps until it is done; its status. */
int test_copy_wait(struct gpu_engine *engine, struct test_copy *test);
/* Submits, and waits. */
int gpu_copy_now(struct gpu_engine *engine, enum gpu_direction direction, driver_address to,
		 driver_address from, size_t bytes);
void gpu_reap_once(struct gpu_engine *engine);

/* Each waits until it is done; the status. The problem is in the struct. */
int gpu_memory_create_now(struct gpu_engine *engine, struct gpu_memory *memory, size_t bytes);
int gpu_memory_destroy_now(struct gpu_engine *engine, struct gpu_memory *memory);
int gpu_pin_add_now(struct gpu_engine *engine, struct gpu_pin *pin, void *base, size_t bytes);
int gpu_pin_remove_now(struct gpu_engine *engine, struct gpu_pin *pin);
int gpu_kernels_load_now(struct gpu_engine *engine, struct gpu_kernels *kernels);
int gpu_kernels_unload_now(struct gpu_engine *engine, struct gpu_kernels *kernels);
int gpu_event_create_now(struct gpu_engine *engine, struct gpu_event *event);
int gpu_event_open_now(struct gpu_engine *engine, struct gpu_event *event);
int gpu_event_close_now(struct gpu_engine *engine, struct gpu_event *event);

/* A kernel for the stand-in: to[i] = from[i] + value, by a thread for each. */
struct add_arguments {
	driver_address to, from;
	size_t count;
	unsigned value;
};
#define ADD_THREADS 32
extern const struct standin_image add_image;
extern const char *const add_names[1];

/* Whether the stand-in has that host memory registered. */
bool gpu_has_pinned(void *base);
/* What of the GPU is free, by the stand-in. */
size_t gpu_free_bytes(const struct gpu_fixture *fixture);

/* This program once more, with a descriptor as its argument: a process that has not called the driver yet. */
struct other_process {
	pid_t process;
	int in, out; /* its standard input and output */
};
/* Makes no assertion, so that a forked child can call it. */
int other_process_start(struct other_process *other, int fd);
/* If it is there. */
void other_process_kill(struct other_process *other);

static inline driver_address host_address(const void *bytes)
{
	return (uintptr_t)bytes;
}

#endif
