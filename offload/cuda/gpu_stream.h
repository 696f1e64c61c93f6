/* A stream of a GPU that another thread than its engine's tells what to do: copies, kernels, and marks, by
 * which it hears how far the GPU has come. What has been submitted to the engine is in no order with it.
 *
 * All calls of one stream are one thread's, and they change its context. They return 0 or a negative errno;
 * whether the GPU is lost finds the engine. */
#ifndef TIERD_OFFLOAD_CUDA_GPU_STREAM_H
#define TIERD_OFFLOAD_CUDA_GPU_STREAM_H

#include "offload/cuda/gpu_engine.h"

/* So many that the GPU is not past. */
#define GPU_STREAM_MARKS 80

struct gpu_stream;

/* The engine is there until it is freed. */
int gpu_stream_new(struct gpu_engine *engine, struct gpu_stream **ret_stream);
struct gpu_stream *gpu_stream_free(struct gpu_stream *stream);
DEFINE_FREEP(struct gpu_stream *, gpu_stream_free)

/* As the driver has it. */
struct driver_stream *gpu_stream_handle(const struct gpu_stream *stream);
/* The context is the calling thread's from now on. */
int gpu_stream_use(struct gpu_stream *stream);
int gpu_stream_copy(struct gpu_stream *stream, driver_address to, driver_address from, size_t bytes);
/* A kernel that the engine has loaded (gpu_program.h). Its one parameter is copied. */
int gpu_stream_launch(struct gpu_stream *stream, struct driver_function *function, uint32_t blocks,
		      uint32_t threads, const void *parameter);
/* A mark behind all that is on the stream now. */
int gpu_stream_mark(struct gpu_stream *stream, uint64_t *ret_mark);
/* 1: the GPU is past it; 0: not yet. */
int gpu_stream_is_past(struct gpu_stream *stream, uint64_t mark);

#endif
