/* A throttle shares the loop among users: it counts the time that the loop works for one of them. A user who
 * has had more than his share rests, as long as others want something. */
#ifndef TIERD_DAEMON_THROTTLE_H
#define TIERD_DAEMON_THROTTLE_H

#include <event2/event_struct.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/queue.h"

/* Those of all users who have a connection, or have left and still rest. Of zeros it is empty. */
struct throttles {
	struct throttle *first;
	bool has_last;
	uid_t last; /* who was heard last: at last_ns; and of all others at other_ns the last one */
	uint64_t last_ns, other_ns;
};

struct throttle;

/* A connection that waits while its user rests. */
struct throttle_waiter {
	struct queue link;
	void (*go)(struct throttle_waiter *waiter); /* it has its turn; called by the loop */
};

/* Another connection of the user is there, or has gone. NULL: there is no memory. */
struct throttle *throttle_enter(struct throttles *throttles, struct event_base *loop, uid_t uid);
void throttle_leave(struct throttle *throttle);
/* No connection is left. */
void throttles_clear(struct throttles *throttles);

/* The user wants something. */
void throttle_hear(struct throttle *throttle, uint64_t now_ns);

/* What the loop does for a user at once. Time in which other processes had the processor does not count. */
struct throttle_turn {
	uint64_t started_ns, processor_ns; /* processor_ns 0: nobody has looked */
};
struct throttle_turn throttle_begin(const struct throttle *throttle, uint64_t now_ns);
void throttle_end(struct throttle *throttle, const struct throttle_turn *turn);
/* It has taken so long. */
void throttle_charge(struct throttle *throttle, uint64_t taken_ns, uint64_t now_ns);

/* The user rests, or others of his connections wait for their turn already. */
bool throttle_is_resting(const struct throttle *throttle, uint64_t now_ns);
/* The connection waits until that is over, behind the others; queue_remove() takes it back. */
void throttle_wait(struct throttle *throttle, struct throttle_waiter *waiter, uint64_t now_ns);
/* A turn that takes longer stops. */
#define THROTTLE_BRIEF_NS UINT64_C(50000)

/* Reading a large frame takes long by itself, so its user waits for the next one whoever else is there. This
 * is until when. */
uint64_t *throttle_large_until_ns(struct throttle *throttle);
/* How long a user rests after a large frame that took so long. */
uint64_t throttle_rest_ns(uint64_t taken_ns);

#endif
