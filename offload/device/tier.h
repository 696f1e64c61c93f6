/* A tier keeps bytes in one kind of memory: GPU, host or NVMe. */
#ifndef TIERD_OFFLOAD_TIER_H
#define TIERD_OFFLOAD_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/queue.h"

struct tier;

/* A flush makes safe what writes that were done before it was submitted have written: after a power failure,
 * too. It moves no bytes: buffer, offset and length are 0. One that fails may have lost any of them, and says
 * nothing of which; it is never tried again. */
enum tier_direction { TIER_READ, TIER_WRITE, TIER_FLUSH, TIER_DIRECTIONS };

/* Somebody waits for a demand read; a prefetch is wanted soon; a write-back only frees memory; what is idle
 * is for when nothing else is to be done. */
enum tier_priority { TIER_DEMAND, TIER_PREFETCH, TIER_WRITE_BACK, TIER_IDLE, TIER_PRIORITIES };

/* One transfer, or a flush. The caller owns it, and leaves it and its buffer alone from a successful
 * tier_submit() until done() runs, once, on the loop thread: either the whole length has been transferred, or
 * status says why not. */
struct tier_io {
	enum tier_direction direction;
	enum tier_priority priority;
	void *buffer;
	uint64_t offset;
	size_t length;
	void (*done)(struct tier_io *io, int status); /* 0 or -errno */

	/* Of the tier, while submitted. */
	struct queue link; /* of what waits */
	size_t finished, piece, cost;
	unsigned retries;
	int file;
	struct schedule_flow *flow;
	bool is_background; /* what is in flight */
};

/* Of a device: users share it, and then the jobs of each. 0 is the default of both. */
struct tier_share {
	uint32_t user;
	unsigned user_share; /* 1 to SCHEDULE_MAX_SHARE */
	unsigned weight;     /* of a job among those of its user; 1 to SCHEDULE_MAX_WEIGHT */
};

struct tier_ops {
	size_t block_size; /* offset, length and buffer align to it */
	int (*submit)(struct tier *tier, struct tier_io *io);
	/* NULL: transfers do not wait here. */
	void (*raise)(struct tier *tier, struct tier_io *io, enum tier_priority priority);
	/* NULL: it has no share of anything. */
	void (*weigh)(struct tier *tier, const struct tier_share *share);
	/* NULL: it cannot. */
	int (*grow)(struct tier *tier, uint64_t capacity);
	/* NULL: what it holds ends with it anyway. */
	void (*keep)(struct tier *tier, bool is_kept);
	void (*free)(struct tier *tier);
};

/* Embedded first in every backend's own struct. */
struct tier {
	const struct tier_ops *ops;
	_Atomic uint64_t capacity;
	const char *label; /* for messages: which device; owned by the backend */
	struct {
		uint64_t requests, bytes;
	} submitted[TIER_DIRECTIONS];
};

/* Starts a flush, or a transfer of at least one byte. -ERANGE: outside the capacity; other errors: the
 * backend's. After an error done() never runs; it never runs inside this call either. */
int tier_submit(struct tier *tier, struct tier_io *io);

/* Somebody has come to wait for a transfer that is submitted and not done: what the device has not seen of it
 * goes on at that priority. Nothing happens if it has it already. */
void tier_raise(struct tier *tier, struct tier_io *io, enum tier_priority priority);

/* Its share of the device, beside others there, from now on. */
void tier_weigh(struct tier *tier, const struct tier_share *share);

/* Reserves more, so that it has that capacity, which is no less than it has; all or nothing. Slow, so it may
 * run on another thread, while transfers go on. -EOPNOTSUPP: it cannot grow; -ENOSPC. */
int tier_grow(struct tier *tier, uint64_t capacity);

/* Whether what it holds is still there after tier_free(): at first no, of one that was found yes. */
void tier_keep(struct tier *tier, bool is_kept);

/* All transfers must be done. Slow where much is not kept, so it may run on another thread. */
struct tier *tier_free(struct tier *tier);
DEFINE_FREEP(struct tier *, tier_free)

#endif
