/* What the files of the GPU engine share. */
#ifndef TIERD_OFFLOAD_CUDA_GPU_PRIVATE_H
#define TIERD_OFFLOAD_CUDA_GPU_PRIVATE_H

#include <pthread.h>

#include "offload/cuda/gpu_engine.h"

struct gpu_piece {
	struct gpu_copy *copy;
	size_t bytes;
	struct driver_event *end;
};

/* One direction: a stream, and its pieces in their order, of which the first is at first. */
struct gpu_lane {
	struct driver_stream *stream;
	struct gpu_piece pieces[GPU_PIECES];
	unsigned first, count;
	uint64_t busy_since_ns; /* or since when it is counted */
	struct queue waiting[TIER_PRIORITIES], held;
};

struct gpu_engine {
	struct driver driver;
	int device; /* as the driver counts */
	char name[160];
	uint64_t peers; /* a bit for each GPU that reaches this one's memory, and is reached; it is one */
	int fd;
	void (*failed)(void *context, const char *problem);
	void *context;
	pthread_t thread;

	pthread_mutex_t lock;
	pthread_cond_t is_wanted;
	struct queue submitted, finished, recorded;
	struct gpu_traffic traffic[GPU_DIRECTIONS];
	bool is_closing, has_changes;
	bool is_failure_new; /* what is lost has not been told */

	/* Of the thread. */
	struct driver_context *driver_context;
	bool has_entered; /* calls are in that context */
	struct queue tasks, copies;
	struct gpu_lane lanes[GPU_DIRECTIONS];
	bool is_lost;
	struct gpu_problem loss;
};

/* A task that has more to do, after the copies had their turn. */
#define GPU_AGAIN 1

/* 0, or the errno of what a call of the driver returned, and what is to be said of it. */
int gpu_check(struct gpu_engine *engine, const char *call, int error, struct gpu_problem *problem);
/* Nobody knows any more what the GPU does. */
void gpu_give_up(struct gpu_engine *engine, const char *call, int error);
/* The GPU is lost: -ENODEV. */
int gpu_refuse(const struct gpu_engine *engine, struct gpu_problem *problem);

void gpu_submit(struct gpu_engine *engine, struct gpu_request *request,
		int (*run)(struct gpu_engine *engine, struct gpu_request *request));
/* On the thread: the request is done. */
void gpu_finish(struct gpu_engine *engine, struct gpu_request *request, int status);
/* The same: recorded() is to run. */
void gpu_tell_recorded(struct gpu_engine *engine, struct gpu_copy *copy);

/* Waits until the thread has entered the GPU. */
int gpu_thread_start(struct gpu_engine *engine, struct gpu_problem *problem);

int gpu_lanes_open(struct gpu_engine *engine, struct gpu_problem *problem);
void gpu_lanes_close(struct gpu_engine *engine);
void gpu_copies_take(struct gpu_engine *engine, struct gpu_copy *copy);
/* Does what was asked of copies since they were submitted. */
void gpu_copies_attend(struct gpu_engine *engine);
/* Looks what has ended, and what may begin. */
void gpu_copies_advance(struct gpu_engine *engine);

#endif
