/* A throttle has a time, until_ns, which moves ahead by what its user takes of the loop, times a factor. As
 * far as it is ahead of the clock the user has had too much. Then his connections wait in line, and one of
 * them has its turn between two looks of the loop; if he is far ahead, they wait until he is not. So a user
 * whose requests are brief may have half of the loop, one turn at a time. The factor grows with the length of
 * a turn: whoever comes meanwhile waits for an eightieth of a millisecond on average, however long turns are.
 *
 * Nobody waits for himself: if no other user has wanted anything for a while, all connections go on at once.
 */
#include "daemon/session/throttle.h"

#include <event2/event.h>
#include <stdlib.h>
#include <time.h>

#include "common/clock.h"

#define MOST_REST_NS UINT64_C(1000000000)
#define UNIT_NS UINT64_C(25000) /* of the factor */
#define MOST_FACTOR 100
/* How far ahead of the clock one waits in line, and how far without turns: the loop's timers count
 * milliseconds. */
#define LINE_NS UINT64_C(50000)
#define FAR_NS UINT64_C(1000000)
/* Of large frames. */
#define LONG_NS UINT64_C(500000)
#define LARGE_FACTOR 20
#define LONG_LARGE_FACTOR 100
/* Others want something as long after they have been heard: who asks how things are once in a second slows
 * nobody for longer. */
#define HEARD_NS UINT64_C(100000000)
/* Reading the processor's time is a system call: it is read of those who have taken long lately. So the first
 * time costs nobody his rest: it may have been others who had the processor. */
#define WATCH_NS UINT64_C(1000000000)

struct throttle {
	struct throttle *next;
	struct throttles *throttles;
	uid_t uid;
	unsigned connections;
	uint64_t until_ns, large_until_ns, watched_until_ns;
	struct queue waiting;
	struct event turn;
};

/* ---- Resting ---- */

/* Until when others count as there, since they were heard last; 0: nobody was. */
static uint64_t others_until_ns(const struct throttle *throttle)
{
	const struct throttles *throttles = throttle->throttles;
	bool is_another = throttles->has_last && throttles->last != throttle->uid;
	uint64_t heard = is_another ? throttles->last_ns : throttles->other_ns;

	return heard > 0 ? heard + HEARD_NS : 0;
}

static bool others_are_there(const struct throttle *throttle, uint64_t now_ns)
{
	return now_ns < others_until_ns(throttle);
}

static uint64_t lesser(uint64_t one, uint64_t other)
{
	return one < other ? one : other;
}

uint64_t throttle_rest_ns(uint64_t taken_ns)
{
	return lesser(taken_ns * (taken_ns > LONG_NS ? LONG_LARGE_FACTOR : LARGE_FACTOR), MOST_REST_NS);
}

void throttle_charge(struct throttle *throttle, uint64_t taken_ns, uint64_t now_ns)
{
	uint64_t from = throttle->until_ns > now_ns ? throttle->until_ns : now_ns;
	uint64_t factor = lesser(1 + taken_ns / UNIT_NS, MOST_FACTOR);

	throttle->until_ns = lesser(from + taken_ns * factor, now_ns + MOST_REST_NS);
}

static uint64_t processor_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

struct throttle_turn throttle_begin(const struct throttle *throttle, uint64_t now_ns)
{
	bool is_watched = now_ns < throttle->watched_until_ns;

	return (struct throttle_turn){ now_ns, is_watched ? processor_now_ns() : 0 };
}

void throttle_end(struct throttle *throttle, const struct throttle_turn *turn)
{
	uint64_t now = clock_now_ns(), taken = now - turn->started_ns;

	if (!others_are_there(throttle, now))
		return;
	if (taken > THROTTLE_BRIEF_NS) {
		throttle->watched_until_ns = now + WATCH_NS;
		taken = turn->processor_ns ? lesser(taken, processor_now_ns() - turn->processor_ns)
					   : THROTTLE_BRIEF_NS;
	}
	throttle_charge(throttle, taken, now);
}

void throttle_hear(struct throttle *throttle, uint64_t now_ns)
{
	struct throttles *throttles = throttle->throttles;

	if (throttles->has_last && throttles->last != throttle->uid)
		throttles->other_ns = throttles->last_ns;
	throttles->has_last = true;
	throttles->last = throttle->uid;
	throttles->last_ns = now_ns;
}

static uint64_t ahead_of(const struct throttle *throttle, uint64_t now_ns)
{
	bool is_ahead = throttle->until_ns > now_ns && others_are_there(throttle, now_ns);

	return is_ahead ? throttle->until_ns - now_ns : 0;
}

/* 0: one of his connections may have its turn. */
static uint64_t left_of_rest(const struct throttle *throttle, uint64_t now_ns)
{
	uint64_t ahead = ahead_of(throttle, now_ns);

	return ahead > FAR_NS ? ahead - FAR_NS : 0;
}

bool throttle_is_resting(const struct throttle *throttle, uint64_t now_ns)
{
	return !queue_is_empty(&throttle->waiting) || ahead_of(throttle, now_ns) > LINE_NS;
}

uint64_t *throttle_large_until_ns(struct throttle *throttle)
{
	return &throttle->large_until_ns;
}

/* ---- Waiting ---- */

/* Not for longer than others are there. */
static void arm(struct throttle *throttle, uint64_t now_ns)
{
	uint64_t left = left_of_rest(throttle, now_ns);
	uint64_t us = left > 0 ? (lesser(left, others_until_ns(throttle) - now_ns) + 999) / 1000 : 0;
	struct timeval delay = { .tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000) };

	event_add(&throttle->turn, &delay);
}

void throttle_wait(struct throttle *throttle, struct throttle_waiter *waiter, uint64_t now_ns)
{
	queue_push(&throttle->waiting, &waiter->link);
	if (!event_pending(&throttle->turn, EV_TIMEOUT, NULL))
		arm(throttle, now_ns);
}

/* One, and then the loop looks what others want. */
static void on_turn(evutil_socket_t fd, short what, void *argument)
{
	struct throttle *throttle = argument;
	uint64_t now = clock_now_ns();
	struct queue *link = left_of_rest(throttle, now) > 0 ? NULL : queue_pop(&throttle->waiting);

	if (!queue_is_empty(&throttle->waiting))
		arm(throttle, now);
	if (link) {
		struct throttle_waiter *waiter = queue_entry(link, struct throttle_waiter, link);

		waiter->go(waiter);
	}
}

/* ---- Life ---- */

static void throttle_free(struct throttle *throttle)
{
	event_del(&throttle->turn);
	free(throttle);
}

/* Those who have left, and do not rest any more. */
static void forget(struct throttles *throttles, uint64_t now_ns)
{
	for (struct throttle **at = &throttles->first; *at;) {
		struct throttle *throttle = *at;

		if (throttle->connections > 0 || throttle->until_ns > now_ns ||
		    throttle->large_until_ns > now_ns) {
			at = &throttle->next;
			continue;
		}
		*at = throttle->next;
		throttle_free(throttle);
	}
}

static struct throttle *find(const struct throttles *throttles, uid_t uid)
{
	struct throttle *throttle = throttles->first;

	while (throttle && throttle->uid != uid)
		throttle = throttle->next;
	return throttle;
}

static struct throttle *add(struct throttles *throttles, struct event_base *loop, uid_t uid)
{
	struct throttle *throttle = calloc(1, sizeof(*throttle));

	if (!throttle)
		return NULL;
	throttle->throttles = throttles;
	throttle->uid = uid;
	queue_init(&throttle->waiting);
	evtimer_assign(&throttle->turn, loop, on_turn, throttle);
	throttle->next = throttles->first;
	throttles->first = throttle;
	return throttle;
}

struct throttle *throttle_enter(struct throttles *throttles, struct event_base *loop, uid_t uid)
{
	struct throttle *throttle;

	forget(throttles, clock_now_ns());
	throttle = find(throttles, uid) ?: add(throttles, loop, uid);
	if (throttle)
		throttle->connections++;
	return throttle;
}

void throttle_leave(struct throttle *throttle)
{
	if (!throttle)
		return;
	throttle->connections--;
	forget(throttle->throttles, clock_now_ns());
}

void throttles_clear(struct throttles *throttles)
{
	forget(throttles, UINT64_MAX);
}
