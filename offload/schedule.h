/* A schedule decides which transfer a device sees next, so that the flood of one job does not stall another.
 */
#ifndef TIERD_OFFLOAD_SCHEDULE_H
#define TIERD_OFFLOAD_SCHEDULE_H

#include <stdbool.h>

#include "offload/tier.h"

#define SCHEDULE_MAX_FLOWS 256
#define SCHEDULE_MAX_WEIGHT 10000
#define SCHEDULE_DEFAULT_WEIGHT 100
/* A device sees no more of a transfer at once. */
#define SCHEDULE_PIECE_BYTES ((size_t)1 << 20)
/* While demand reads wait, everything else together moves a byte for so many of theirs; and while a flow's
 * prefetches wait, its write-back does. */
#define SCHEDULE_BACKGROUND_PART 16
#define SCHEDULE_WRITE_BACK_PART 8
/* While anything else waits, what is idle moves a byte for so many of the others, in the room that they
 * have. */
#define SCHEDULE_IDLE_PART 64

/* While demand reads are in flight, the bound on the bytes of the rest is so much lower: they share the
 * device. */
#define SCHEDULE_DEMAND_DIVISOR 4
/* Where no demand read comes the bound grows, to so many times as much, by a byte for so many of the rest
 * that are moved: many devices are fast with longer queues only. What is idle alone does not use that. */
#define SCHEDULE_GROWTH_MAX 4
#define SCHEDULE_GROWTH_PART 4

/* Demand reads go before the rest, whoever asks, and what is idle comes last; within each of the classes
 * flows share by weight. */
enum schedule_class { SCHEDULE_DEMAND, SCHEDULE_BACKGROUND, SCHEDULE_IDLE, SCHEDULE_CLASSES };

struct schedule;

/* What one job wants of one device. */
struct schedule_flow {
	struct schedule *schedule;
	unsigned weight, in_flight;
	struct queue waiting[TIER_PRIORITIES];
	struct schedule_turn {
		uint64_t time;	/* virtual: the flow with the earliest is next */
		unsigned index; /* in the schedule's heap of the class; meaningless while nothing waits */
	} turns[SCHEDULE_CLASSES];
	size_t earned; /* bytes that its write-back may move before its prefetches */
};

struct schedule_limits {
	unsigned depth;		 /* pieces in flight; a quarter of them is kept for demand reads */
	size_t background_bytes; /* in flight of all but demand reads; see above; one piece always may be */
};

/* One device. Nothing here allocates; a call costs O(log flows). */
struct schedule {
	struct schedule_limits limits;
	struct schedule_heap {
		struct schedule_flow *flows[SCHEDULE_MAX_FLOWS];
		unsigned count;
		uint64_t now; /* virtual: that of the last turn */
	} heaps[SCHEDULE_CLASSES];
	unsigned in_flight, background_in_flight;
	size_t background_bytes;
	size_t grown;	    /* by what the background's bound is higher since the last demand read */
	size_t earned;	    /* bytes that the background may move before demand reads */
	size_t idle_earned; /* bytes that what is idle may move before both */
};

void schedule_init(struct schedule *schedule, const struct schedule_limits *limits);

/* Prepares a flow, which begins with nothing; at most SCHEDULE_MAX_FLOWS have something waiting. weight:
 * 1 to SCHEDULE_MAX_WEIGHT. May be called from another thread than the loop's. */
void schedule_flow_init(struct schedule_flow *flow, struct schedule *schedule, unsigned weight);

/* Nothing waits or is in flight: the flow may be forgotten. */
bool schedule_flow_is_idle(const struct schedule_flow *flow);

/* A transfer waits, in the order of their coming within its priority. */
void schedule_push(struct schedule_flow *flow, struct tier_io *io);

/* What is left of a transfer waits, before all others of its priority. */
void schedule_push_rest(struct schedule_flow *flow, struct tier_io *io);

/* Takes the next transfer, of which io->piece bytes are to be moved now; NULL: nothing may start. */
struct tier_io *schedule_next(struct schedule *schedule);

/* The piece is not in flight any more. */
void schedule_finish(struct tier_io *io);

/* A transfer that waits, or of which a piece is in flight, goes on at a higher priority, behind those that
 * have it already. */
void schedule_raise(struct tier_io *io, enum tier_priority priority);

#endif
