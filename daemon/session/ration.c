/* A ration grows by what its user takes, times a factor, and shrinks by itself as time goes by: it is ahead
 * of the clock by what he has had too much of. Then his connections wait in line, and one of them has its
 * turn between two looks of the loop; where it is far ahead, they wait until it is not. So who takes little
 * at once may have half of the loop, one turn at a time. Of what takes longer the factor grows with it:
 * whoever comes meanwhile waits for an eightieth of a millisecond, on average, however long it is.
 *
 * Nobody waits for himself: where no other user has wanted anything for a while, all go on at once. */
#include "daemon/session/ration.h"

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

struct ration {
	struct ration *next;
	struct rations *rations;
	uid_t uid;
	unsigned connections;
	uint64_t until_ns, large_until_ns, watched_until_ns;
	struct queue waiting;
	struct event turn;
};

/* ---- Resting ---- */

/* Until when others count as there, since they were heard last; 0: nobody was. */
static uint64_t others_until_ns(const struct ration *ration)
{
	const struct rations *rations = ration->rations;
	bool is_another = rations->has_last && rations->last != ration->uid;
	uint64_t heard = is_another ? rations->last_ns : rations->other_ns;

	return heard > 0 ? heard + HEARD_NS : 0;
}

static bool others_are_there(const struct ration *ration, uint64_t now_ns)
{
	return now_ns < others_until_ns(ration);
}

static uint64_t lesser(uint64_t one, uint64_t other)
{
	return one < other ? one : other;
}

uint64_t ration_rest_ns(uint64_t taken_ns)
{
	return lesser(taken_ns * (taken_ns > LONG_NS ? LONG_LARGE_FACTOR : LARGE_FACTOR), MOST_REST_NS);
}

void ration_charge(struct ration *ration, uint64_t taken_ns, uint64_t now_ns)
{
	uint64_t from = ration->until_ns > now_ns ? ration->until_ns : now_ns;
	uint64_t factor = lesser(1 + taken_ns / UNIT_NS, MOST_FACTOR);

	ration->until_ns = lesser(from + taken_ns * factor, now_ns + MOST_REST_NS);
}

static uint64_t processor_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

struct ration_turn ration_begin(const struct ration *ration, uint64_t now_ns)
{
	bool is_watched = now_ns < ration->watched_until_ns;

	return (struct ration_turn){ now_ns, is_watched ? processor_now_ns() : 0 };
}

void ration_end(struct ration *ration, const struct ration_turn *turn)
{
	uint64_t now = clock_now_ns(), taken = now - turn->started_ns;

	if (!others_are_there(ration, now))
		return;
	if (taken > RATION_BRIEF_NS) {
		ration->watched_until_ns = now + WATCH_NS;
		taken = turn->processor_ns ? lesser(taken, processor_now_ns() - turn->processor_ns)
					   : RATION_BRIEF_NS;
	}
	ration_charge(ration, taken, now);
}

void ration_hear(struct ration *ration, uint64_t now_ns)
{
	struct rations *rations = ration->rations;

	if (rations->has_last && rations->last != ration->uid)
		rations->other_ns = rations->last_ns;
	rations->has_last = true;
	rations->last = ration->uid;
	rations->last_ns = now_ns;
}

static uint64_t ahead_of(const struct ration *ration, uint64_t now_ns)
{
	bool is_ahead = ration->until_ns > now_ns && others_are_there(ration, now_ns);

	return is_ahead ? ration->until_ns - now_ns : 0;
}

/* 0: one of his connections may have its turn. */
static uint64_t left_of_rest(const struct ration *ration, uint64_t now_ns)
{
	uint64_t ahead = ahead_of(ration, now_ns);

	return ahead > FAR_NS ? ahead - FAR_NS : 0;
}

bool ration_is_resting(const struct ration *ration, uint64_t now_ns)
{
	return !queue_is_empty(&ration->waiting) || ahead_of(ration, now_ns) > LINE_NS;
}

uint64_t *ration_large_until_ns(struct ration *ration)
{
	return &ration->large_until_ns;
}

/* ---- Waiting ---- */

/* Not for longer than others are there. */
static void arm(struct ration *ration, uint64_t now_ns)
{
	uint64_t left = left_of_rest(ration, now_ns);
	uint64_t us = left > 0 ? (lesser(left, others_until_ns(ration) - now_ns) + 999) / 1000 : 0;
	struct timeval delay = { .tv_sec = (time_t)(us / 1000000), .tv_usec = (suseconds_t)(us % 1000000) };

	event_add(&ration->turn, &delay);
}

void ration_wait(struct ration *ration, struct ration_waiter *waiter, uint64_t now_ns)
{
	queue_push(&ration->waiting, &waiter->link);
	if (!event_pending(&ration->turn, EV_TIMEOUT, NULL))
		arm(ration, now_ns);
}

/* One, and then the loop looks what others want. */
static void on_turn(evutil_socket_t fd, short what, void *argument)
{
	struct ration *ration = argument;
	uint64_t now = clock_now_ns();
	struct queue *link = left_of_rest(ration, now) > 0 ? NULL : queue_pop(&ration->waiting);

	if (!queue_is_empty(&ration->waiting))
		arm(ration, now);
	if (link) {
		struct ration_waiter *waiter = queue_entry(link, struct ration_waiter, link);

		waiter->go(waiter);
	}
}

/* ---- Life ---- */

static void ration_free(struct ration *ration)
{
	event_del(&ration->turn);
	free(ration);
}

/* Those who have left, and do not rest any more. */
static void forget(struct rations *rations, uint64_t now_ns)
{
	for (struct ration **at = &rations->first; *at;) {
		struct ration *ration = *at;

		if (ration->connections > 0 || ration->until_ns > now_ns || ration->large_until_ns > now_ns) {
			at = &ration->next;
			continue;
		}
		*at = ration->next;
		ration_free(ration);
	}
}

static struct ration *find(const struct rations *rations, uid_t uid)
{
	struct ration *ration = rations->first;

	while (ration && ration->uid != uid)
		ration = ration->next;
	return ration;
}

static struct ration *add(struct rations *rations, struct event_base *loop, uid_t uid)
{
	struct ration *ration = calloc(1, sizeof(*ration));

	if (!ration)
		return NULL;
	ration->rations = rations;
	ration->uid = uid;
	queue_init(&ration->waiting);
	evtimer_assign(&ration->turn, loop, on_turn, ration);
	ration->next = rations->first;
	rations->first = ration;
	return ration;
}

struct ration *ration_enter(struct rations *rations, struct event_base *loop, uid_t uid)
{
	struct ration *ration;

	forget(rations, clock_now_ns());
	ration = find(rations, uid) ?: add(rations, loop, uid);
	if (ration)
		ration->connections++;
	return ration;
}

void ration_leave(struct ration *ration)
{
	if (!ration)
		return;
	ration->connections--;
	forget(ration->rations, clock_now_ns());
}

void rations_clear(struct rations *rations)
{
	forget(rations, UINT64_MAX);
}
