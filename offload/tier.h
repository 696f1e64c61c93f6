/* A tier keeps bytes in one kind of memory: GPU, host or NVMe. */
#ifndef TIERD_OFFLOAD_TIER_H
#define TIERD_OFFLOAD_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/queue.h"

struct tier;

enum tier_direction { TIER_READ, TIER_WRITE };

/* Somebody waits for a demand read; a prefetch is wanted soon; a write-back only frees memory. */
enum tier_priority { TIER_DEMAND, TIER_PREFETCH, TIER_WRITE_BACK, TIER_PRIORITIES };

/* One transfer. The caller owns it, and leaves it and its buffer alone from a successful tier_submit() until
 * done() runs, once, on the loop thread: either the whole length has been transferred, or status says why
 * not. */
struct tier_io {
	enum tier_direction direction;
	enum tier_priority priority;
	void *buffer;
	uint64_t offset;
	size_t length;
	void (*done)(struct tier_io *io, int status); /* 0 or -errno */

	/* Of the tier, while submitted. */
	struct queue link; /* of what waits */
	size_t finished, piece;
	unsigned retries;
	int file;
	struct schedule_flow *flow;
	bool is_background; /* what is in flight */
};

struct tier_ops {
	const char *name;
	size_t block_size; /* offset, length and buffer align to it */
	int (*submit)(struct tier *tier, struct tier_io *io);
	/* NULL: transfers do not wait here. */
	void (*raise)(struct tier *tier, struct tier_io *io, enum tier_priority priority);
	void (*free)(struct tier *tier);
};

/* Embedded first in every backend's own struct. */
struct tier {
	const struct tier_ops *ops;
	uint64_t capacity;
	const char *label; /* for messages: which device; owned by the backend */
	struct {
		uint64_t requests, bytes;
	} submitted[2]; /* by direction */
};

/* Starts a transfer of at least one byte. -ERANGE: outside the capacity; other errors: the backend's. After
 * an error done() never runs; it never runs inside this call either. */
int tier_submit(struct tier *tier, struct tier_io *io);

/* Somebody has come to wait for a transfer that is submitted and not done: what the device has not seen of it
 * goes on at that priority. Nothing happens if it has it already. */
void tier_raise(struct tier *tier, struct tier_io *io, enum tier_priority priority);

/* All transfers must be done. */
struct tier *tier_free(struct tier *tier);
DEFINE_FREEP(struct tier *, tier_free)

#endif
