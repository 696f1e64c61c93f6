/* Staging: the node's buffers through which state streams, a chunk of elements at a time. They take memory
 * only while there is a job that may use them. */
#ifndef TIERD_DAEMON_STAGING_H
#define TIERD_DAEMON_STAGING_H

#include "offload/device/engine.h"
#include "offload/device/memory.h"
#include "offload/device/tier.h"

/* One for a chunk: its parameters, and each state beside them, one after the other. */
#define STAGING_BYTES (UINT64_C(3) << 20)

/* With fewer the devices have nothing to do while one is computed on. */
#define STAGING_LEAST 3

struct staging_buffer {
	struct queue link;
	char *data;
	bool is_taken;
	uint32_t user; /* who has it */
};

struct staging {
	struct memory memory;
	struct staging_buffer *all;
	unsigned count;
	int pinning; /* 0, or why the kernel does not pin it: transfers cost more processor time */
	unsigned users;
	struct queue free;
	struct queue wanted; /* struct staging_wish; of each user first come first served */
	struct queue loans;  /* that are not recalled, the latest first */
	unsigned lent;	     /* in all */
	unsigned at_gpus;
};

struct staging_wish {
	struct queue link;
	void (*granted)(struct staging_wish *wish, struct staging_buffer *buffer);
	struct tier_share
		share;	 /* of several users the next buffer is his who has the fewest for his share */
	bool is_patient; /* a buffer will be given soon: nothing is recalled for it */
};

/* A buffer that may stay in use for as long as somebody outside of the daemon likes. */
struct staging_loan {
	struct queue link;
	/* Somebody wants a buffer, and there is none: this one is to be given back, but not inside. */
	void (*recalled)(struct staging_loan *loan);
	struct tier_share share;
	struct staging_buffer *buffer;
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

/* A buffer at once, if there is one and nobody waits; else NULL, and granted() is called later, once. What
 * was lent last is recalled, unless the wish is patient. */
struct staging_buffer *staging_take(struct staging *staging, struct staging_wish *wish);
void staging_give(struct staging *staging, struct staging_buffer *buffer);

/* Lends a buffer, if there is one and enough are left with which all others go on. */
bool staging_lend(struct staging *staging, struct staging_loan *loan);
/* From now on it is used as any other one: it is to be given. */
struct staging_buffer *staging_end_loan(struct staging *staging, struct staging_loan *loan);

/* A taken buffer is written by a GPU. One that is lost may never let go of it, so it is asked first whether
 * enough are left with which all others go on. */
bool staging_may_go_to_gpu(const struct staging *staging);
void staging_go_to_gpu(struct staging *staging);
void staging_come_from_gpu(struct staging *staging);

#endif
