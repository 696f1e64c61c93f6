/* What a GPU engine runs on its GPU: kernels, and programs of copies and launches. */
#ifndef TIERD_OFFLOAD_CUDA_GPU_PROGRAM_H
#define TIERD_OFFLOAD_CUDA_GPU_PROGRAM_H

#include "offload/cuda/gpu_engine.h"

/* Of a program's copies to the GPU, its kernels and its copies back each can run while others do the other
 * two: so many programs keep the GPU and both directions of its bus at work. */
#define GPU_STREAMS 3

/* Kernels that a GPU has loaded. */
struct gpu_kernels {
	struct gpu_request request;
	const void *image; /* as nvcc makes it; NULL: tierd was built without it */
	unsigned count;
	const char *const *names;
	struct driver_function **functions; /* of those names, in an array of the caller's */
	struct driver_module *module;	    /* NULL: there is none */
};

/* -ENOEXEC: this driver, or this GPU, does not take the image, and the problem has the remedy; copies go on.
 */
void gpu_kernels_load(struct gpu_engine *engine, struct gpu_kernels *kernels);
/* No program may be on its way with one. Succeeds also where the GPU is lost. */
void gpu_kernels_unload(struct gpu_engine *engine, struct gpu_kernels *kernels);

/* A launch, or a copy. */
struct gpu_step {
	struct driver_function *function; /* NULL: it is a copy */
	const void *arguments;		  /* the one parameter */
	uint32_t blocks, threads;

	enum gpu_direction direction;
	driver_address to, from;
	size_t bytes;
};

/* Steps in their order. Programs of one stream run one after the other, so they may use the same memory
 * without waiting for one another; those of several streams run side by side, as copies do beside them. */
struct gpu_program {
	struct gpu_request request;
	unsigned stream;
	/* It begins when all has ended that this is behind, as of then, and others of its stream may be
	 * first; NULL: in the order of submission. */
	struct gpu_event *after;
	unsigned count;
	const struct gpu_step *steps;

	/* Of the engine, while submitted. */
	atomic_bool is_cancelled;
};

/* After a failure of a call some of the steps may have run, but none runs any more, unless the GPU is lost.
 */
void gpu_program_submit(struct gpu_engine *engine, struct gpu_program *program);
/* It ends with -ECANCELED if it has not begun. */
void gpu_program_cancel(struct gpu_engine *engine, struct gpu_program *program);

#endif
