/* A GPU engine has memory on a GPU, and moves bytes between it, host memory and other GPUs; gpu_program.h has
 * what it runs there.
 *
 * Some calls of the driver take milliseconds. So a thread of the engine makes them all, and what is asked of
 * it is done, or has failed, when gpu_engine_reap() says so. A GPU that falls off the bus, or that a mistake
 * has stopped, is lost to this process: all that is asked of it fails with -ENODEV from then on. */
#ifndef TIERD_OFFLOAD_CUDA_GPU_ENGINE_H
#define TIERD_OFFLOAD_CUDA_GPU_ENGINE_H

#include <stdatomic.h>

#include "common/queue.h"
#include "offload/cuda/driver.h"
#include "offload/cuda/gpus.h"
#include "offload/device/tier.h"

/* A copy is moved in pieces, of which each direction has so many on their way: enough to keep the GPU at
 * work, and few enough that a demand read does not wait long. */
#define GPU_PIECE_BYTES ((size_t)8 << 20)
#define GPU_PIECES 4
/* Host memory is registered in pieces that begin at multiples of this. */
#define GPU_PIN_BYTES ((uintptr_t)64 << 20)

/* What takes a GPU longer than this hangs: it is lost. Nothing that it is asked for takes a second. */
#define GPU_PATIENCE_MS 60000

struct gpu_engine;

/* Which GPU, which call of the driver, and what the driver says. */
struct gpu_problem {
	char text[384];
};

struct gpu_engine_config {
	const struct gpus *gpus;
	unsigned gpu; /* its place there */
	/* The GPU is lost. Once, by gpu_engine_reap(), before the first request that fails for it. */
	void (*failed)(void *context, const char *problem);
	void *context;
	unsigned patience_ms; /* 0: GPU_PATIENCE_MS */
};

/* May take a second, because the driver wakes the GPU up. -ENODEV: there is no driver, or no such GPU;
 * -EACCES: its compute mode lets nobody use it; -EOPNOTSUPP: processes cannot share its memory by descriptor.
 */
int gpu_engine_new(const struct gpu_engine_config *config, struct gpu_problem *ret_problem,
		   struct gpu_engine **ret_engine);

/* All requests must be done. Memory, pins and events that are left go with the process. */
struct gpu_engine *gpu_engine_free(struct gpu_engine *engine);
DEFINE_FREEP(struct gpu_engine *, gpu_engine_free)

const char *gpu_engine_name(const struct gpu_engine *engine); /* "GPU 0 (NVIDIA H100 80GB HBM3)" */

/* Whether this GPU can copy from and to memory of that one, of the same gpus. */
bool gpu_engine_reaches(const struct gpu_engine *engine, unsigned gpu);

/* True: the driver has not come back from a call for longer than that. Nobody can end such a call, so what is
 * in flight stays there. */
bool gpu_engine_hangs(struct gpu_engine *engine, struct gpu_problem *ret_problem);
/* Since when it has not come back from a call, or from several in a row; 0: it has. */
uint64_t gpu_engine_at_work_since(const struct gpu_engine *engine);

/* From now on what takes the GPU longer than that hangs, what is under way included. */
void gpu_engine_hurry(struct gpu_engine *engine, unsigned patience_ms);

/* Readable (an eventfd) while results wait for gpu_engine_reap(), which runs their done(). */
int gpu_engine_fd(const struct gpu_engine *engine);
void gpu_engine_reap(struct gpu_engine *engine);

/* One thing that is asked of a GPU. The caller owns it, with the struct that it is in, and leaves it alone
 * until done() runs, once, by gpu_engine_reap(). */
struct gpu_request {
	void (*done)(struct gpu_request *request, int status); /* 0 or -errno */
	struct gpu_problem problem;			       /* of what failed */

	/* Of the engine, while submitted. */
	int (*run)(struct gpu_engine *engine, struct gpu_request *request);
	void (*take)(struct gpu_engine *engine, struct gpu_request *request);
	int status;
	struct queue link;
};

/* Memory of the GPU, mapped in this process, for it and for all GPUs that reach it. Other processes import
 * the descriptor; it is there, also for them, until the last of them has let go. */
struct gpu_memory {
	struct gpu_request request;
	size_t bytes;		/* that are wanted; then a multiple of the driver's granularity */
	driver_address address; /* 0: there is none */
	int fd;			/* close-on-exec; of the memory */
	driver_allocation allocation;
	bool is_reserved, is_mapped;
};

/* -ENOMEM: the problem has how much is free. Otherwise as the driver. */
void gpu_memory_create(struct gpu_engine *engine, struct gpu_memory *memory);
/* No copy may be on its way from or to it. Succeeds also where the GPU is lost, whose memory goes after its
 * context, when it, or another GPU, is closed. */
void gpu_memory_destroy(struct gpu_engine *engine, struct gpu_memory *memory);

/* Host memory that all GPUs copy from and to at full speed, because it stays where it is. Whole pages.
 * Several engines may pin the same range: it is pinned until the last has let go. */
struct gpu_pin {
	struct gpu_request request;
	void *base;
	size_t bytes;
	size_t registered;
};

/* Takes time: copies go on meanwhile. -EEXIST: a part of it is pinned in another range. If it fails nothing
 * of it is pinned, and copies from and to it are slow, and hold up the others. */
void gpu_pin_add(struct gpu_engine *engine, struct gpu_pin *pin);
/* No copy of this engine may be on its way from or to it. Succeeds also where the GPU is lost. Where it fails
 * the driver keeps what gpu_pin_keeps() says. */
void gpu_pin_remove(struct gpu_engine *engine, struct gpu_pin *pin);
/* Some of it is registered still, though nobody pins it: it must stay where it is, and may be pinned again
 * there. On any thread. */
bool gpu_pin_keeps(const void *base, size_t bytes);

/* A place in the order of what the GPU does, which processes share. */
struct gpu_event {
	struct gpu_request request;
	struct driver_event_handle handle;
	struct driver_event *event; /* NULL: there is none */
};

/* Makes one, with its handle, or opens that of another process by its handle. */
void gpu_event_create(struct gpu_engine *engine, struct gpu_event *event);
void gpu_event_open(struct gpu_engine *engine, struct gpu_event *event);
/* No copy may be on its way with it. */
void gpu_event_close(struct gpu_engine *engine, struct gpu_event *event);

/* From GPU to GPU: both are reached by the engine. */
enum gpu_direction { GPU_FROM_HOST, GPU_TO_HOST, GPU_TO_GPU, GPU_DIRECTIONS };

/* A copy, or a wait for an event if it has no bytes. Of copies of one direction one with a higher priority is
 * first. Nothing else orders copies: of two that meet in memory, the second is submitted when the first is
 * done. */
struct gpu_copy {
	struct gpu_request request;
	enum gpu_direction direction;
	enum tier_priority priority;
	driver_address to, from; /* that of host memory is this process's */
	size_t bytes;
	/* It begins when all has ended that this is behind, as of then; NULL: at once. The engine looks
	 * again and again: another process's event may never come, so nothing may stand in line behind it. */
	struct gpu_event *after;
	/* Written by the engine, to be read when the copy is done: when all of that had ended; 0: it is
	 * behind nothing. */
	uint64_t after_ns;
	/* Recorded behind it; NULL: none. Whoever waits for the event once recorded() has run, by
	 * gpu_engine_reap(), waits for the copy. It does not run if the copy fails before. */
	struct gpu_event *behind;
	void (*recorded)(struct gpu_copy *copy);

	/* Of the engine, while submitted. */
	size_t begun;	 /* bytes */
	unsigned moving; /* pieces */
	bool is_held, is_waiting;
	atomic_bool is_cancelled;
	_Atomic enum tier_priority wanted;
	struct queue link, recorded_link; /* of all copies; of those recorded() is to run for */
};

void gpu_copy_submit(struct gpu_engine *engine, struct gpu_copy *copy);
/* It ends with -ECANCELED when what is on its way has arrived; or with 0, if that is all. */
void gpu_copy_cancel(struct gpu_engine *engine, struct gpu_copy *copy);
/* What is left of it gets another priority, behind those that have it. */
void gpu_copy_raise(struct gpu_engine *engine, struct gpu_copy *copy, enum tier_priority priority);

/* What copies moved, and for how long one was on its way; programs are not counted. */
struct gpu_traffic {
	uint64_t bytes, busy_ns;
};
struct gpu_traffic gpu_engine_traffic(struct gpu_engine *engine, enum gpu_direction direction);

#endif
