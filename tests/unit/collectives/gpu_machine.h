/* GPUs of the stand-in, and what their owner does on them for communicators. */
#ifndef TIERD_TESTS_UNIT_COLLECTIVES_GPU_MACHINE_H
#define TIERD_TESTS_UNIT_COLLECTIVES_GPU_MACHINE_H

#include <pthread.h>

#include "collectives/nccl/communicator.h"

#define MACHINE_GPUS 4
#define MACHINE_RANKS 4
/* More than a communicator waits for at once. */
#define MACHINE_MARKS 128

struct driver_context;
struct driver_stream;
struct driver_event;

/* What a GPU does not do any more. */
enum machine_fault { FAULT_NONE, FAULT_USE, FAULT_COPY, FAULT_SUM, FAULT_MARK, FAULT_ANSWER };

struct machine {
	enum machine_fault fault; /* of the last GPU */
	unsigned copies;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct machine_gpu {
		struct driver_context *context;
		struct driver_stream *stream;
		char *memory;
		size_t used;
		bool is_held;
		struct machine *machine;
		uint64_t marks;
		struct driver_event *events[MACHINE_MARKS]; /* of the last marks */
	} gpus[MACHINE_GPUS];
};

struct machine *machine_new(void);
void machine_free(struct machine *machine);
/* Of a GPU's memory, aligned as the driver aligns it. */
void *machine_allocate(struct machine *machine, unsigned gpu, size_t bytes);
/* All of it is free again. */
void machine_reset(struct machine *machine);

/* Waits until its GPUs have done all. */
void machine_drain(struct machine *machine);

/* A GPU's stream stops at what comes to it now, until it is let go. */
void machine_hold(struct machine *machine, unsigned gpu);
void machine_let_go(struct machine *machine, unsigned gpu);

/* The owner is a machine. */
extern const struct communicator_gpu_ops machine_ops;

#endif
