/* Staging: the node's buffers through which state streams, a chunk of elements at a time. They take memory
 * only while there is a job that may use them. */
#ifndef TIERD_DAEMON_STAGING_H
#define TIERD_DAEMON_STAGING_H

#include "offload/engine.h"
#include "offload/memory.h"

/* One for a chunk: its parameters, and each state beside them, one after the other. */
#define STAGING_BYTES (UINT64_C(3) << 20)

/* With fewer the devices have nothing to do while one is computed on. */
#define STAGING_LEAST 3

struct staging_buffer {
	struct queue link;
	char *data;
};

struct staging {
	struct memory memory;
	struct staging_buffer *all;
	unsigned count;
	int pinning; /* 0, or why the kernel does not pin it: transfers cost more processor time */
	unsigned users;
	struct queue free;
	struct queue wanted; /* struct staging_wish, first come first served */
};

struct staging_wish {
	struct queue link;
	void (*granted)(struct staging_wish *wish, struct staging_buffer *buffer);
};

/* Tries to pin it: who runs the daemon is to hear early that it cannot be. */
int staging_init(struct staging *staging, unsigned count, struct engine *engine);
void staging_clear(struct staging *staging, struct engine *engine);

/* Each use is left, once. The first pins the buffers; the last unpins them and gives their memory back, so
 * nobody has a buffer then. Slow, and all from one thread. */
void staging_use(struct staging *staging, struct engine *engine);
void staging_leave(struct staging *staging, struct engine *engine);

static inline size_t staging_bytes(unsigned count)
{
	return (size_t)count * STAGING_BYTES;
}

/* A buffer at once, if there is one and nobody waits; else NULL, and granted() is called later, once. */
struct staging_buffer *staging_take(struct staging *staging, struct staging_wish *wish);
void staging_give(struct staging *staging, struct staging_buffer *buffer);

#endif
