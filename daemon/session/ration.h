/* A ration is what of the loop's time one user has had. The loop is everybody's: whoever has more of it than
 * his part rests, as long as others want something. */
#ifndef TIERD_DAEMON_RATION_H
#define TIERD_DAEMON_RATION_H

#include <event2/event_struct.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/queue.h"

/* All of them, of users who are there, and of those that have left and still rest; all zero to begin with. */
struct rations {
	struct ration *first;
	bool has_last;
	uid_t last; /* who was heard last: at last_ns; and of all others at other_ns the last one */
	uint64_t last_ns, other_ns;
};

struct ration;

/* One who waits while his user rests. */
struct ration_waiter {
	struct queue link;
	void (*go)(struct ration_waiter *waiter); /* on the loop; by himself he would not have had to wait */
};

/* Of a user one more of whose connections is there. NULL: there is no memory. ration_leave(): that has gone.
 */
struct ration *ration_enter(struct rations *rations, struct event_base *loop, uid_t uid);
void ration_leave(struct ration *ration);
/* Nobody is there. */
void rations_clear(struct rations *rations);

/* The user wants something. */
void ration_hear(struct ration *ration, uint64_t now_ns);

/* What is done for him at once. A processor that others had meanwhile counts for nothing. */
struct ration_turn {
	uint64_t started_ns, processor_ns; /* processor_ns 0: nobody has looked */
};
struct ration_turn ration_begin(const struct ration *ration, uint64_t now_ns);
void ration_end(struct ration *ration, const struct ration_turn *turn);
/* So much of it, by now. */
void ration_charge(struct ration *ration, uint64_t taken_ns, uint64_t now_ns);

/* He rests, or others of his connections wait for their turn already. */
bool ration_is_resting(const struct ration *ration, uint64_t now_ns);
/* Until that is over, each in turn; queue_remove() takes it back. */
void ration_wait(struct ration *ration, struct ration_waiter *waiter, uint64_t now_ns);
/* So much at once is no work yet. What does more in a turn stops there. */
#define RATION_BRIEF_NS UINT64_C(50000)

/* Large frames take long only to be read, so that users wait for them whoever else is there: until when. */
uint64_t *ration_large_until_ns(struct ration *ration);
/* How long one rests who has taken so long at once. */
uint64_t ration_rest_ns(uint64_t taken_ns);

#endif
