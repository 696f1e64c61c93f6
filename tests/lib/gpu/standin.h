/* What the files of the stand-in for the GPU driver share.
 *
 * GPU memory is host memory, at the same address. One lock guards all that is here; bytes are moved, and host
 * functions run, without it. A mistake of the caller's that would break a GPU ends the process, and says
 * which. */
#ifndef TIERD_TESTS_LIB_GPU_STANDIN_H
#define TIERD_TESTS_LIB_GPU_STANDIN_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/queue.h"
#include "tests/lib/gpu/cuda_calls.h"
#include "tests/lib/gpu/race.h"

#define STANDIN_GPUS_MAX 64
#define STANDIN_GRANULARITY ((size_t)2 << 20)

extern pthread_mutex_t standin_lock;
extern pthread_cond_t standin_changed;

void standin_abort(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Each call begins with one of these: an error, scripted or deserved. What is asked about a GPU is known also
 * if it is lost; what is asked of it is not done then. A call in a context has one. */
int standin_enter(const char *call);
int standin_enter_device(const char *call, int device);
int standin_enter_gpu(const char *call, int device);
int standin_enter_context(const char *call, struct driver_context **ret_context);

int standin_gpus(void); /* -1: cuInit has not been called in this process */
size_t standin_bytes(void);
int standin_device(const struct driver_context *context);
/* The error that the GPU is lost with; DRIVER_DONE: it is not. */
int standin_lost(int device);
void standin_lose(int device, int error);

/* What lies at an address, and how far, with the lock held. */
struct standin_place {
	enum { PLACE_GPU, PLACE_PINNED, PLACE_PAGEABLE } kind;
	size_t bytes;
	struct race_table *table; /* of its accesses; NULL: pageable memory */
	size_t offset;		  /* in what the table is of */
};
/* Aborts where a stream of that GPU would break it: nothing is mapped there, or not for that GPU. */
struct standin_place memory_find(driver_address address, size_t bytes, int device, const char *what);
struct standin_place host_find(driver_address address, size_t bytes, int device);

/* This process has seen the end of all that comes before. */
void standin_see(const struct race_clock *clock);
void memory_see(const struct race_clock *clock);
void host_see(const struct race_clock *clock);

/* A thread that does one task after the other. */
struct driver_stream {
	struct driver_context *context;
	pthread_t thread;
	struct queue tasks;
	uint64_t submitted, finished;
	bool is_closing;
	long delay_us;
	struct race_actor actor;
	struct queue link;
};

struct standin_kernel;

/* Of a stream, which owns it. */
struct task {
	/* When the stream is told, with the lock held. */
	void (*begin)(struct driver_stream *stream, struct task *task);
	/* When it comes to it: on its thread, without the lock. An error loses the GPU. */
	int (*run)(struct driver_stream *stream, struct task *task);
	driver_address to, from;
	size_t bytes;
	unsigned char value;
	void (*function)(void *argument);
	void *argument;
	struct race_clock *before; /* what comes before a function */
	const struct standin_kernel *kernel;
	void *copied;		    /* the kernel's arguments, of the task */
	unsigned blocks, *launched; /* of its module, what has not ended */
	struct driver_event *event;
	uint32_t number; /* of the event's record */
	struct queue link;
};

/* Takes a copy of the task. */
int stream_submit(const char *call, struct driver_stream *stream, const struct task *task,
		  bool is_waited_for);
/* With the lock held: a stream is told to access what lies there. */
void stream_touch(struct driver_stream *stream, driver_address address, size_t bytes, bool is_write,
		  const char *what);
/* All streams of a context: what they have not begun is dropped if its GPU is lost. */
void streams_end(struct driver_context *context);
void host_end(const struct driver_context *context);
void modules_end(const struct driver_context *context);
/* Of this thread; NULL: it is none of a stream. */
struct driver_stream *stream_current(void);

/* With the lock held. */
void event_release(struct driver_event *event);

#endif
