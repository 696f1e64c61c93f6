/* A schedule decides which transfer a device sees next, so that a flood from one user, or one job, does not
 * stall others. */
#ifndef TIERD_OFFLOAD_SCHEDULE_H
#define TIERD_OFFLOAD_SCHEDULE_H

#include <stdbool.h>

#include "offload/device/tier.h"

#define SCHEDULE_MAX_FLOWS 256
#define SCHEDULE_MAX_WEIGHT 10000
#define SCHEDULE_DEFAULT_WEIGHT 100
#define SCHEDULE_MAX_SHARE 10000
#define SCHEDULE_DEFAULT_SHARE 100
/* The largest part of a transfer that a device sees at once. */
#define SCHEDULE_PIECE_BYTES ((size_t)1 << 20)
/* The least that a transfer costs its user. A flush costs a piece. */
#define SCHEDULE_LEAST_BYTES ((size_t)16 << 10)
/* While demand reads wait, all else together moves one byte for so many of theirs. While a flow's prefetches
 * wait, its write-back moves one byte for so many of theirs. */
#define SCHEDULE_BACKGROUND_PART 16
#define SCHEDULE_WRITE_BACK_PART 8
/* While anything else waits, idle transfers move one byte for so many of the others, within the bound of the
 * others. */
#define SCHEDULE_IDLE_PART 64

/* Divides the bound on the bytes of the rest while demand reads are in flight. */
#define SCHEDULE_DEMAND_DIVISOR 4
/* Without demand reads the bound grows up to so many times as much, by one byte for so many that are moved,
 * because many devices are fast with long queues only. Idle transfers alone do not use that. */
#define SCHEDULE_GROWTH_MAX 4
#define SCHEDULE_GROWTH_PART 4

/* While several users move something, each has one piece in flight, or as much as the background bound if all
 * of them have more waiting. A user who is alone may have more in flight: by one byte for so many that were
 * moved since another user's last turn. */
#define SCHEDULE_ALONE_PART 4

/* Demand reads of a user go before the rest. In each class the flows of a user share by weight. Idle
 * transfers come last, of all users. */
enum schedule_class { SCHEDULE_DEMAND, SCHEDULE_BACKGROUND, SCHEDULE_IDLE, SCHEDULE_CLASSES };
/* Between users no class goes before another, or a user with demand reads only would stall one who writes. */
enum schedule_kind { SCHEDULE_WANTED, SCHEDULE_SPARE, SCHEDULE_KINDS };

struct schedule;

/* Waiting turns by virtual time; the earliest is next. */
struct schedule_order {
	struct queue turns;
	uint64_t now; /* that of the last turn */
};

struct schedule_turn {
	struct queue link; /* empty while nothing waits */
	uint64_t time;
};

/* What is in flight, and how much the background bound has grown since the last demand read. */
struct schedule_load {
	unsigned in_flight, background_in_flight;
	size_t background_bytes, grown;
};

/* A user of the device, with all flows that share his part of it. */
struct schedule_user {
	uint32_t id;
	unsigned share;
	struct schedule_turn turns[SCHEDULE_KINDS];
	struct schedule_order flows[SCHEDULE_CLASSES];
	struct schedule_load load;
	size_t bytes;  /* cost of what is in flight, without idle transfers */
	size_t earned; /* bytes that the background may move before demand reads */
};

/* What one job wants of one device. */
struct schedule_flow {
	struct schedule *schedule;
	struct tier_share share;
	/* Of the share, once something has waited; the slot may be another's by now. */
	struct schedule_user *user;
	unsigned in_flight;
	struct queue waiting[TIER_PRIORITIES];
	struct schedule_turn turns[SCHEDULE_CLASSES];
	size_t earned; /* bytes that its write-back may move before its prefetches */
};

struct schedule_limits {
	unsigned depth;		 /* pieces in flight; a quarter is reserved for demand reads */
	size_t background_bytes; /* in flight, without demand reads; see above; one piece always may be */
};

/* One device. Nothing here allocates; a call costs O(flows) at most, and O(1) where they have equal weights.
 */
struct schedule {
	struct schedule_limits limits;
	struct schedule_order orders[SCHEDULE_KINDS];
	struct schedule_user users[SCHEDULE_MAX_FLOWS]; /* the slot of an absent user may go to another */
	unsigned user_count;
	/* Users who wait, and who wait or have something in flight; without idle transfers. */
	unsigned waiting, present;
	const struct schedule_user *last; /* of what is wanted */
	size_t alone;			  /* how much more it may have in flight, since another had a turn */
	struct schedule_load load;
	size_t bytes; /* as those of each user */
	unsigned idle_in_flight;
	size_t idle_earned; /* bytes that idle transfers may move before others */
};

void schedule_init(struct schedule *schedule, const struct schedule_limits *limits);

/* Prepares an empty flow; at most SCHEDULE_MAX_FLOWS have something waiting. May be called from another
 * thread than the loop's. */
void schedule_flow_init(struct schedule_flow *flow, struct schedule *schedule,
			const struct tier_share *share);

/* Applies from the next turn on; a change of the user, once the flow has been idle. */
void schedule_flow_weigh(struct schedule_flow *flow, const struct tier_share *share);

/* Whether nothing waits or is in flight. */
bool schedule_flow_is_idle(const struct schedule_flow *flow);

/* Queues a transfer, behind all others of its priority. */
void schedule_push(struct schedule_flow *flow, struct tier_io *io);

/* Queues the rest of a transfer, before all others of its priority. */
void schedule_push_rest(struct schedule_flow *flow, struct tier_io *io);

/* The bytes that a device sees at once at most, of all but demand reads. */
size_t schedule_most_bytes(const struct schedule *schedule);

/* Whether anything waits or is in flight that is not idle. */
bool schedule_is_wanted(const struct schedule *schedule);

/* Takes the next transfer, to move io->piece bytes of it now; NULL: nothing may start. */
struct tier_io *schedule_next(struct schedule *schedule);

/* The piece is not in flight any more. */
void schedule_finish(struct tier_io *io);

/* Raises the priority of a transfer that waits or is in flight; it goes behind those that have that priority.
 */
void schedule_raise(struct tier_io *io, enum tier_priority priority);

#endif
