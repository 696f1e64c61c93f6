/* How a session goes:
 *
 *   HELLO     the first frame must be a Hello with a version that we speak, within first_frame_ms
 *   OPEN      requests, each complete within frame_ms of its first byte
 *   CLOSING   the client broke a rule: it gets a last answer, and what else it sends is not read
 *   ENDED     the socket is closed; the process may still read what it has leased
 *
 * To ENDED lead: the end of the stream, an error of the socket, an unread last answer, too many unread
 * answers, and the death of the process. The client is freed, and over() called, when it has no lease, which
 * is looked at every lease_look_ms, or when the process is dead: not before, because a live process may still
 * read what it has mapped. Both happen only in on_ending(), which the loop calls: never below a request that
 * is being handled, or another session's event. */
#include "daemon/session/session_inside.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/clock.h"
#include "daemon/session/client.h"
#include "daemon/session/peer.h"

#define FRAMES_PER_TURN 4
/* Who has left so many bytes of answers unread gets his next turn after a while. */
#define UNREAD ((size_t)64 << 10)
#define UNREAD_PAUSE_MS 2
/* What a definition of a hundred tensors takes. */
#define LARGE_FRAME ((size_t)16 << 10)

/* A process that died can have left this many reads in its socket, and not more. */
#define READS_OF_DEAD 256

void session_arm(struct event *timer, unsigned ms)
{
	struct timeval delay = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

	event_add(timer, &delay);
}

/* ---- The end ---- */

void session_end(struct session *session, const char *format, ...)
{
	va_list arguments;

	if (session->state == SESSION_ENDED)
		return;
	session->state = SESSION_ENDED;
	if (session->reason[0] == '\0') {
		va_start(arguments, format);
		vsnprintf(session->reason, sizeof(session->reason), format, arguments);
		va_end(arguments);
	}
	event_del(&session->reading);
	event_del(&session->writing);
	event_del(&session->turn);
	queue_remove(&session->waiter.link);
	event_del(&session->deadline);
	session->socket = fd_close(session->socket);
	outbox_clear(&session->outbox);
	session_arm(&session->ending, 0);
}

static void on_ending(evutil_socket_t fd, short what, void *argument)
{
	struct session *session = argument;

	if (session->client && !session->has_hung_up) {
		session->has_hung_up = true;
		client_hang_up(session->client, session->reason);
	}
	/* Nobody tells when they go: it has hung up. */
	if (session->client && !session->is_dead && client_has_leases(session->client)) {
		session_arm(&session->ending, session->shared->lease_look_ms);
		return;
	}
	event_del(&session->death);
	session->client = session->client ? client_free(session->client) : NULL;
	session->shared->over(session, session->shared->argument);
}

void session_tell(const struct session *session, enum event_kind kind, const char *format, ...)
{
	bool is_rank = session->client && client_has_jobs(session->client);
	char why[512];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(why, sizeof(why), format, arguments);
	va_end(arguments);
	events_of_node(session->shared->node, kind, &(struct log_fields){ .user = &session->port.uid },
		       "%s: %s; its connection is closed%s", session->program, why,
		       is_rank ? ", and its ranks leave their jobs" : "");
}

/* The line of an epoch that ends has the reason, too: the failure is logged once. */
static bool ends_epoch(const struct session *session)
{
	return session->client && client_has_epochs(session->client);
}

enum event_kind session_refusal_of(const struct session *session)
{
	return ends_epoch(session) ? EVENT_RANK_REFUSED : EVENT_CLIENT_REFUSED;
}

enum event_kind session_loss_of(const struct session *session)
{
	return ends_epoch(session) ? EVENT_RANK_UNSERVED : EVENT_CLIENT_LOST;
}

/* The other ranks want to know it. Where there are none, nobody does, and finding out takes longer than all
 * else of a connection that comes and goes. */
const char *session_why_it_ended(const struct session *session, const char *otherwise)
{
	bool is_rank = session->client && client_has_jobs(session->client);

	return is_rank && peer_is_dying(session->port.pid, session->process) ? "its process died" : otherwise;
}

/* ---- Input ---- */

/* Who does not read his answers has nothing to ask. */
static bool has_enough(const struct session *session)
{
	return session->client && session->outbox.bytes > session->shared->limits.maximum_output / 2;
}

static void stop_reading(struct session *session)
{
	session->is_waiting = true;
	event_del(&session->reading);
	/* A rest gives nobody more time for his Hello. */
	if (session->state == SESSION_OPEN)
		event_del(&session->deadline);
}

static void go_on_reading(struct session *session)
{
	if (inbox_settle(&session->inbox) < 0) {
		session_end(session, "there was no memory for its request");
		session_tell(session, session_loss_of(session), "there is no memory for its request");
		return;
	}
	session->is_waiting = false;
	event_add(&session->reading, NULL);
	if (session->state == SESSION_OPEN && !inbox_is_empty(&session->inbox) &&
	    !event_pending(&session->deadline, EV_TIMEOUT, NULL))
		session_arm(&session->deadline, session->shared->limits.frame_ms);
}

/* How long the next frame has to wait, in ms; 0: not at all. */
static unsigned find_rest(const struct session *session)
{
	uint64_t now = clock_now_ns(), until = *throttle_large_until_ns(session->throttle);

	if (until <= now || inbox_length(&session->inbox) < LARGE_FRAME)
		return 0;
	return (unsigned)((until - now) / 1000000) + 1;
}

/* The same of its next turn. */
static unsigned find_pause(const struct session *session)
{
	unsigned rest = find_rest(session);

	return rest == 0 && session->outbox.bytes > UNREAD ? UNREAD_PAUSE_MS : rest;
}

static void note_large(const struct session *session, uint64_t started_ns)
{
	uint64_t now = clock_now_ns();

	*throttle_large_until_ns(session->throttle) = now + throttle_rest_ns(now - started_ns);
}

/* Up to one turn. 0: nothing complete is left; 1: something may be; or an error in what is left. */
static int handle_frames(struct session *session)
{
	uint64_t began = clock_now_ns(), start = began;
	struct frame_header header;
	const uint8_t *bytes;
	int r = 1;

	session->is_handling = true;
	for (unsigned i = 0; r > 0 && i < FRAMES_PER_TURN && session->state < SESSION_CLOSING; i++) {
		if (has_enough(session) || find_rest(session) > 0 || start - began > THROTTLE_BRIEF_NS)
			break;
		bool is_large = inbox_length(&session->inbox) >= LARGE_FRAME;

		r = inbox_next(&session->inbox, session->shared->limits.maximum_frame, &header, &bytes);
		if (r > 0)
			session_handle_frame(session, &header, bytes);
		if (r > 0 && is_large)
			note_large(session, start);
		start = clock_now_ns();
	}
	session->is_handling = false;
	return r;
}

static void handle_input(struct session *session)
{
	int r = handle_frames(session);

	if (r == -EMSGSIZE)
		session_refuse(session, 0, r,
			       "a frame of more than %zu bytes: send less at once, or raise frame_size",
			       session->shared->limits.maximum_frame);
	else if (r < 0)
		session_refuse(session, 0, r, "what it sends is not a frame of tierd's protocol");
	session_flush(session);
	if (session->state >= SESSION_CLOSING)
		return;
	if (r == 0) {
		go_on_reading(session);
		return;
	}
	stop_reading(session);
	if (!has_enough(session))
		session_arm(&session->turn, find_pause(session));
}

/* ---- The loop's calls ---- */

/* What the user wants now is done now, or, while he rests, later. False: later. */
static bool begin_turn(struct session *session, struct throttle_turn *ret_turn)
{
	uint64_t now = clock_now_ns();

	throttle_hear(session->throttle, now);
	if (!throttle_is_resting(session->throttle, now)) {
		*ret_turn = throttle_begin(session->throttle, now);
		return true;
	}
	if (queue_is_empty(&session->waiter.link)) {
		stop_reading(session);
		throttle_wait(session->throttle, &session->waiter, now);
	}
	return false;
}

static void read_input(struct session *session)
{
	int r = inbox_read(&session->inbox, session->socket);

	if (r == 0)
		handle_input(session);
	else if (r != -EAGAIN)
		session_end(session, "%s", session_why_it_ended(session, "it closed the connection"));
}

static void on_readable(evutil_socket_t fd, short what, void *argument)
{
	struct session *session = argument;
	struct throttle_turn turn;

	if (!begin_turn(session, &turn))
		return;
	read_input(session);
	throttle_end(session->throttle, &turn);
}

static void on_writable(evutil_socket_t fd, short what, void *argument)
{
	struct session *session = argument;
	struct throttle_turn turn = throttle_begin(session->throttle, clock_now_ns());

	session_flush(session);
	if (session->state == SESSION_OPEN)
		client_catch_up(session->client);
	if (session->is_waiting && session->state < SESSION_CLOSING)
		session_arm(&session->turn, 0);
	throttle_end(session->throttle, &turn);
}

static void on_turn(evutil_socket_t fd, short what, void *argument)
{
	struct session *session = argument;
	struct throttle_turn turn;

	if (has_enough(session) || !begin_turn(session, &turn))
		return;
	handle_input(session);
	throttle_end(session->throttle, &turn);
}

static void on_deadline(evutil_socket_t fd, short what, void *argument)
{
	struct session *session = argument;

	if (session->state == SESSION_HELLO)
		session_refuse(session, 0, -ETIMEDOUT, "no Hello within %u ms",
			       session->shared->limits.first_frame_ms);
	else if (session->state == SESSION_OPEN)
		session_refuse(session, 0, -ETIMEDOUT, "a frame that is not complete after %u ms",
			       session->shared->limits.frame_ms);
	else
		session_end(session, "it did not read its last answer");
}

/* What it sent before it died counts, as it does when the end of the stream is seen first. False: that is
 * all.
 */
static bool handle_last(struct session *session)
{
	if (session->reads_since++ >= READS_OF_DEAD || session->state >= SESSION_CLOSING ||
	    has_enough(session))
		return false;
	if (session->is_waiting)
		handle_input(session);
	/* Where it had to wait before it had read. */
	if (session->is_waiting || session->state >= SESSION_CLOSING)
		return true;
	if (inbox_read(&session->inbox, session->socket) < 0)
		return false;
	handle_input(session);
	return true;
}

/* In a turn that has begun, and as many more as it takes. */
static void bury(struct session *session, struct throttle_turn turn)
{
	bool goes_on;

	do {
		goes_on = handle_last(session);
		throttle_end(session->throttle, &turn);
		if (session->state == SESSION_ENDED)
			return;
	} while (goes_on && begin_turn(session, &turn));
	if (!goes_on)
		session_end(session, "its process died");
}

static void on_death(evutil_socket_t fd, short what, void *argument)
{
	struct session *session = argument;
	struct throttle_turn turn;

	session->is_dead = true;
	event_del(&session->death);
	if (session->state == SESSION_ENDED)
		session_arm(&session->ending, 0);
	else if (begin_turn(session, &turn))
		bury(session, turn);
}

/* It is its turn, after a rest of its user. */
static void go_on(struct throttle_waiter *waiter)
{
	struct session *session = container_of(waiter, struct session, waiter);
	struct throttle_turn turn = throttle_begin(session->throttle, clock_now_ns());

	if (session->is_dead) {
		bury(session, turn);
		return;
	}
	if (!has_enough(session))
		handle_input(session);
	/* Where it waited before it had read: by the time that it is readable others may wait again. */
	if (!session->is_waiting && session->state < SESSION_CLOSING)
		read_input(session);
	throttle_end(session->throttle, &turn);
}

/* ---- Life ---- */

static int look_at_peer(struct session *session)
{
	struct ucred credentials;
	socklen_t size = sizeof(credentials);
	int r;

	if (getsockopt(session->socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) < 0)
		return -errno;
	session->port.uid = credentials.uid;
	session->port.gid = credentials.gid;
	session->port.pid = credentials.pid;
	r = peer_groups(session->socket, &session->port.groups, &session->port.group_count);
	if (r < 0)
		return r;
	session_describe_program(session, "");
	session->process = peer_open_process(session->socket, credentials.pid);
	return session->process < 0 ? session->process : 0;
}

static int start_events(struct session *session)
{
	struct event_base *loop = session->shared->loop;

	event_assign(&session->reading, loop, session->socket, EV_READ | EV_PERSIST, on_readable, session);
	event_assign(&session->writing, loop, session->socket, EV_WRITE, on_writable, session);
	event_assign(&session->death, loop, session->process, EV_READ, on_death, session);
	evtimer_assign(&session->turn, loop, on_turn, session);
	evtimer_assign(&session->deadline, loop, on_deadline, session);
	evtimer_assign(&session->ending, loop, on_ending, session);
	if (event_add(&session->reading, NULL) < 0 || event_add(&session->death, NULL) < 0)
		return -ENOMEM;
	session_arm(&session->deadline, session->shared->limits.first_frame_ms);
	return 0;
}

int session_new(int socket, const struct session_shared *shared, struct session **ret_session)
{
	_cleanup_(session_freep) struct session *session = calloc(1, sizeof(*session));
	uint64_t started = clock_now_ns();
	int r;

	if (!session) {
		fd_close(socket);
		return -ENOMEM;
	}
	session->port.ops = &session_port_ops;
	session->shared = shared;
	session->socket = socket;
	session->process = -1;
	inbox_init(&session->inbox);
	queue_init(&session->link);
	queue_init(&session->waiter.link);
	session->waiter.go = go_on;
	outbox_init(&session->outbox);

	r = look_at_peer(session);
	if (r < 0)
		return r;
	session->throttle = throttle_enter(shared->throttles, shared->loop, session->port.uid);
	if (!session->throttle)
		return -ENOMEM;
	r = start_events(session);
	if (r < 0)
		return r;
	throttle_end(session->throttle, &(struct throttle_turn){ started, 0 });
	*ret_session = TAKE_PTR(session);
	return 0;
}

void session_close(struct session *session)
{
	if (session->state == SESSION_ENDED)
		return;
	outbox_send(&session->outbox, session->socket);
	session_end(session, "%s", "");
}

struct session *session_free(struct session *session)
{
	if (!session)
		return NULL;
	if (event_initialized(&session->reading)) {
		session_close(session);
		event_del(&session->death);
		event_del(&session->ending);
	}
	/* Without a reason of its own it is the daemon that ends. */
	if (session->client && !session->has_hung_up)
		client_hang_up(session->client, *session->reason ? session->reason : NULL);
	if (session->client)
		client_free(session->client);
	queue_remove(&session->link);
	throttle_leave(session->throttle);
	outbox_clear(&session->outbox);
	fd_close(session->socket);
	fd_close(session->process);
	inbox_clear(&session->inbox);
	free(session->port.groups);
	free(session);
	return NULL;
}
