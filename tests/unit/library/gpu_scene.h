/* A rank with a GPU: the library, a fake peer, and streams of a program's. */
#ifndef TIERD_TESTS_GPU_SCENE_H
#define TIERD_TESTS_GPU_SCENE_H

#include "client/tierd.h"
#include "offload/cuda/driver.h"
#include "tests/unit/fake_gpu.h"

enum { FIRST, SECOND, FROZEN, UNITS };
#define STREAMS 2

struct gpu_scene {
	struct fake_peer peer;
	struct fake_gpu gpu;
	/* Before the GPU's own requests; true: handled. */
	bool (*hook)(struct gpu_scene *scene, uint32_t number, const Tierd__Wire__Request *request);
	int reconnect_ms;

	struct tierd_node *node;
	struct tierd_job *job;
	struct tierd_job_state state;
	struct driver driver;
	struct driver_context *context;
	struct driver_stream *streams[STREAMS];
};

/* The GPU and its user, the connection, and the job with its units; then ready. */
void gpu_scene_open(struct gpu_scene *scene);
void gpu_scene_start(struct gpu_scene *scene);
/* Opens the job, and defines its units; NULL: it cannot be opened. */
void gpu_scene_job(struct gpu_scene *scene);
/* Releases what is left. job NULL: it was closed. */
void gpu_scene_end(struct gpu_scene *scene);

/* Gathers, and has the stream copy a part of the unit's bytes to host memory. */
void gpu_scene_read(struct gpu_scene *scene, uint32_t unit, unsigned stream);
/* The same of an address. */
void gpu_scene_read_from(struct gpu_scene *scene, const char *address, unsigned stream);
/* Has the stream write that byte there. */
void gpu_scene_fill(struct gpu_scene *scene, const char *address, unsigned char byte, unsigned stream);
/* Waits for the stream: the byte that all bytes have that it has read last; -1: they differ. */
int gpu_scene_byte(struct gpu_scene *scene, unsigned stream);
/* Puts something into the stream that takes until gpu_scene_go_on(). */
void gpu_scene_hold(struct gpu_scene *scene, unsigned stream);
void gpu_scene_go_on(struct gpu_scene *scene);

int gpu_scene_step(struct gpu_scene *scene);

/* From now on calls of the driver fail as $STANDIN_FAILURES says; NULL: none does. Waits for the streams,
 * which read it, too. The thread has no context then, so that the library needs its own. */
void gpu_scene_fail(struct gpu_scene *scene, const char *failures);

/* How many mappings of GPU memory this process has. */
unsigned gpu_scene_mappings(void);
/* Has the library unmap what is not used any more, until so many are left. */
void gpu_scene_await_mappings(struct gpu_scene *scene, unsigned count);

#endif
