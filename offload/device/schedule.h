/* A schedule decides which transfer a device sees next, so that the flood of one user, or of one job, does
 * not stall another. */
#ifndef TIERD_OFFLOAD_SCHEDULE_H
#define TIERD_OFFLOAD_SCHEDULE_H

#include <stdbool.h>

#include "offload/device/tier.h"

#define SCHEDULE_MAX_FLOWS 256
#define SCHEDULE_MAX_WEIGHT 10000
#define SCHEDULE_DEFAULT_WEIGHT 100
#define SCHEDULE_MAX_SHARE 10000
#define SCHEDULE_DEFAULT_SHARE 100
/* A device sees no more of a transfer at once. */
#define SCHEDULE_PIECE_BYTES ((size_t)1 << 20)
/* A transfer costs its user no less; a flush, as much as a piece. */
#define SCHEDULE_LEAST_BYTES ((size_t)16 << 10)
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

/* While several users move something, each has one piece in flight; those who all have more waiting may have
 * as much as the background has. So who comes finds the device with a piece of each of the others, and with
 * what it may have grown by since the last turn of another user: a byte for so many that were moved. */
#define SCHEDULE_ALONE_PART 4

/* Of a user, demand reads go before the rest; within each of the classes his flows share by weight. What is
 * idle comes last, whoever asks. */
enum schedule_class { SCHEDULE_DEMAND, SCHEDULE_BACKGROUND, SCHEDULE_IDLE, SCHEDULE_CLASSES };
/* Between users nothing goes before the rest, or who has demand reads only would hold up who writes. */
enum schedule_kind { SCHEDULE_WANTED, SCHEDULE_SPARE, SCHEDULE_KINDS };

struct schedule;

/* Those who wait, by their times, which are virtual: the earliest is next. */
struct schedule_order {
	struct queue turns;
	uint64_t now; /* that of the last turn */
};

struct schedule_turn {
	struct queue link; /* empty while nothing waits */
	uint64_t time;
};

/* What is in flight, and by what the bound on the background is higher since the last demand read. */
struct schedule_load {
	unsigned in_flight, background_in_flight;
	size_t background_bytes, grown;
};

/* Whose flows share among themselves what the device gives to one user. */
struct schedule_user {
	uint32_t id;
	unsigned share;
	struct schedule_turn turns[SCHEDULE_KINDS];
	struct schedule_order flows[SCHEDULE_CLASSES];
	struct schedule_load load;
	size_t bytes;  /* that what is wanted and in flight costs */
	size_t earned; /* bytes that his background may move before his demand reads */
};

/* What one job wants of one device. */
struct schedule_flow {
	struct schedule *schedule;
	struct tier_share share;
	struct schedule_user
		*user; /* that of the share once something has waited, unless the slot is another's */
	unsigned in_flight;
	struct queue waiting[TIER_PRIORITIES];
	struct schedule_turn turns[SCHEDULE_CLASSES];
	size_t earned; /* bytes that its write-back may move before its prefetches */
};

struct schedule_limits {
	unsigned depth;		 /* pieces in flight; a quarter of them is kept for demand reads */
	size_t background_bytes; /* in flight of all but demand reads; see above; one piece always may be */
};

/* One device. Nothing here allocates; a call costs O(flows) at most, and O(1) where they have equal weights.
 */
struct schedule {
	struct schedule_limits limits;
	struct schedule_order orders[SCHEDULE_KINDS];
	struct schedule_user
		users[SCHEDULE_MAX_FLOWS]; /* who nothing is known of by now lends his to others */
	unsigned user_count;
	unsigned waiting, present; /* users who wait for what is wanted; and who have it in flight, too */
	const struct schedule_user *last; /* of what is wanted */
	size_t alone;			  /* by what he may have more in flight, since another had a turn */
	struct schedule_load load;
	size_t bytes; /* as those of each user */
	unsigned idle_in_flight;
	size_t idle_earned; /* bytes that what is idle may move before what is wanted */
};

void schedule_init(struct schedule *schedule, const struct schedule_limits *limits);

/* Prepares a flow, which begins with nothing; at most SCHEDULE_MAX_FLOWS have something waiting. May be
 * called from another thread than the loop's. */
void schedule_flow_init(struct schedule_flow *flow, struct schedule *schedule,
			const struct tier_share *share);

/* From its next turn on; of another user, once the flow has been idle. */
void schedule_flow_weigh(struct schedule_flow *flow, const struct tier_share *share);

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
