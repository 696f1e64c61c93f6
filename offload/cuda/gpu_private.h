/* What the files of the GPU engine share. */
#ifndef TIERD_OFFLOAD_CUDA_GPU_PRIVATE_H
#define TIERD_OFFLOAD_CUDA_GPU_PRIVATE_H

#include <pthread.h>

#include "offload/cuda/gpu_program.h"

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
	uint64_t busy_since_ns; /* or since when it is counted: when a piece has ended */
	struct queue waiting[TIER_PRIORITIES], held;
};

/* So many of a stream are on their way. */
#define GPU_PROGRAMS 2

/* One stream of programs. Those that run are in their order, the first's end at first. */
struct gpu_track {
	struct driver_stream *stream;
	struct driver_event *ends[GPU_PROGRAMS];
	unsigned first, count;
	uint64_t busy_since_ns; /* or when one has ended */
	struct queue running, waiting;
};

struct gpu_engine {
	struct driver driver;
	int device; /* as the driver counts */
	char name[160];
	uint64_t peers; /* a bit for each GPU that reaches this one's memory, and is reached; it is one */
	int fd;
	void (*failed)(void *context, const char *problem);
	void *context;
	_Atomic uint64_t patience_ns;
	_Atomic uint64_t at_work_since_ns; /* 0: the thread pauses */
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
	struct gpu_track tracks[GPU_STREAMS];
	_Atomic bool is_lost; /* the streams of other threads look at it */
	struct gpu_problem loss;
};

/* A task that has more to do, after the copies had their turn. */
#define GPU_AGAIN 1

/* An error of the driver's as a negative errno. */
int gpu_errno(int error);
/* 0, or the errno of what a call of the driver returned, and what is to be said of it. */
int gpu_check(struct gpu_engine *engine, const char *call, int error, struct gpu_problem *problem);
/* Nobody knows any more what the GPU does. */
void gpu_give_up(struct gpu_engine *engine, const char *call, int error);
/* Gives it up if what has been under way since then should have ended. */
void gpu_check_patience(struct gpu_engine *engine, uint64_t since_ns, const char *what);
/* The GPU is lost: -ENODEV. */
int gpu_refuse(const struct gpu_engine *engine, struct gpu_problem *problem);

/* All that the stream was told has ended; or its GPU is lost. */
void gpu_drain(struct gpu_engine *engine, struct driver_stream *stream);

/* The thread runs it, and it is done when that returns. */
void gpu_submit(struct gpu_engine *engine, struct gpu_request *request,
		int (*run)(struct gpu_engine *engine, struct gpu_request *request));
/* The thread takes it, and ends it later. */
void gpu_hand_over(struct gpu_engine *engine, struct gpu_request *request,
		   void (*take)(struct gpu_engine *engine, struct gpu_request *request));
/* The thread attends to what was handed over. */
void gpu_change(struct gpu_engine *engine);
/* On the thread: the request is done. */
void gpu_finish(struct gpu_engine *engine, struct gpu_request *request, int status);
/* The same: recorded() is to run. */
void gpu_tell_recorded(struct gpu_engine *engine, struct gpu_copy *copy);

/* Waits until the thread has entered the GPU. */
int gpu_thread_start(struct gpu_engine *engine, struct gpu_problem *problem);

int gpu_lanes_open(struct gpu_engine *engine, struct gpu_problem *problem);
void gpu_lanes_close(struct gpu_engine *engine);
/* A bit for each GPU that has a context in this process. */
uint64_t gpu_contexts(const struct gpu_engine *engine);
/* A context has been let go: memory that the driver has not taken back goes, if its GPU's has gone. */
void gpu_memory_forget(const struct gpu_engine *engine);
/* The GPU's context is wanted no longer for what is kept. */
void gpu_pins_close(const struct gpu_engine *engine);
/* A context has been let go: what was kept for it alone is kept no more, if it has gone. */
void gpu_pins_forget(const struct gpu_engine *engine);
/* Does what was asked of copies since they were submitted. */
void gpu_copies_attend(struct gpu_engine *engine);
/* Looks what has ended, and what may begin. */
void gpu_copies_advance(struct gpu_engine *engine);
/* The same of programs. */
void gpu_programs_attend(struct gpu_engine *engine);
void gpu_programs_advance(struct gpu_engine *engine);
bool gpu_programs_wait(const struct gpu_engine *engine);
bool gpu_programs_run(const struct gpu_engine *engine);

/* How much of a copy is told a stream at once. */
size_t gpu_piece_bytes(enum gpu_direction direction, driver_address to, driver_address from, size_t bytes);

#endif
