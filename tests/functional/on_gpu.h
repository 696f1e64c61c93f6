/* What a rank of a test does on a GPU, which a stand-in plays: it has a stream there, which copies what was
 * gathered to host memory. All is in the order of the stream; the stand-in ends a process that breaks it. */
#ifndef TIERD_TESTS_ON_GPU_H
#define TIERD_TESTS_ON_GPU_H

#include <stddef.h>
#include <stdint.h>

struct on_gpu;

/* As the process counts GPUs, for memory of so many bytes. Prints and ends the process on failure, as all of
 * the following do. */
struct on_gpu *on_gpu_new(int gpu, size_t bytes);

/* What to give to tierd_gather_on and tierd_release_on. */
void *on_gpu_stream(const struct on_gpu *gpu);

/* The memory of so many bytes. */
char *on_gpu_memory(const struct on_gpu *gpu);

/* Tells the stream to copy what lies on the GPU to there in the memory. */
void on_gpu_read(const struct on_gpu *gpu, size_t to, const void *from, size_t bytes);

/* Until it has done all that it was told. */
void on_gpu_wait(const struct on_gpu *gpu);

#endif
