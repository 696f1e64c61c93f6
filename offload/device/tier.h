/* A tier keeps bytes in one kind of memory: GPU, host or NVMe. */
#ifndef TIERD_OFFLOAD_TIER_H
#define TIERD_OFFLOAD_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/cleanup.h"
#include "common/queue.h"

struct tier;

/* A flush makes writes safe against a power failure: those that were done before it was submitted. Its
 * buffer, offset and length are 0. After a flush that failed any of those writes may be lost; it is never
 * tried again. */
enum tier_direction { TIER_READ, TIER_WRITE, TIER_FLUSH, TIER_DIRECTIONS };

/* Somebody waits for a demand read. A prefetch is needed soon. A write-back only frees memory. An idle
 * transfer is for when there is nothing else. */
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

/* A share of a device: users share it, and then the jobs of each user. 0: the default. */
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
	/* NULL: its content never outlives it. */
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

/* Raises the priority of what the device has not seen yet of a transfer that is submitted and not done. */
void tier_raise(struct tier *tier, struct tier_io *io, enum tier_priority priority);

/* Sets its share of the device. */
void tier_weigh(struct tier *tier, const struct tier_share *share);

/* Grows to a capacity that is no less than the present one, or changes nothing. It is slow, and may run on
 * another thread while transfers go on. -EOPNOTSUPP: it cannot grow; -ENOSPC. */
int tier_grow(struct tier *tier, uint64_t capacity);

/* Whether its content stays after tier_free(). The default: that of an opened file stays. */
void tier_keep(struct tier *tier, bool is_kept);

/* All transfers must be done. It is slow if much is not kept, so it may run on another thread. */
struct tier *tier_free(struct tier *tier);
DEFINE_FREEP(struct tier *, tier_free)

#endif
