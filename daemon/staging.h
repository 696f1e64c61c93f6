/* Staging: the node's buffers through which optimizer state streams, a chunk of elements at a time. */
#ifndef TIERD_DAEMON_STAGING_H
#define TIERD_DAEMON_STAGING_H

#include "offload/engine.h"
#include "offload/memory.h"

/* Whole blocks of every stream: 512 KiB of bf16, 1 MiB of fp32. */
#define CHUNK_ELEMENTS (UINT64_C(1) << 18)

struct staging_buffers {
	struct queue link;
	/* Room for CHUNK_ELEMENTS in fp32; a bf16 section has its remainders in the second half of parameter.
	 */
	char *parameter, *m, *v;
};

struct staging {
	struct memory memory;
	struct staging_buffers *all;
	unsigned count;
	struct queue free;
	struct queue wanted; /* struct staging_wish, first come first served */
};

struct staging_wish {
	struct queue link;
	void (*granted)(struct staging_wish *wish, struct staging_buffers *buffers);
};

int staging_init(struct staging *staging, unsigned count, struct engine *engine);
void staging_clear(struct staging *staging, struct engine *engine);
static inline size_t staging_bytes(unsigned count)
{
	return (size_t)count * 3 * CHUNK_ELEMENTS * sizeof(float);
}

/* Buffers at once, if there are some and nobody waits; else NULL, and granted() is called later, once. */
struct staging_buffers *staging_take(struct staging *staging, struct staging_wish *wish);
void staging_give(struct staging *staging, struct staging_buffers *buffers);

#endif
