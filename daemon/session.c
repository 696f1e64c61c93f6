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
#include "daemon/session.h"

#include <ctype.h>
#include <errno.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/client.h"
#include "daemon/events.h"
#include "daemon/inbox.h"
#include "daemon/node.h"
#include "daemon/outbox.h"
#include "daemon/peer.h"

#define FRAMES_PER_TURN 16

/* A process that died can have left this many reads in its socket, and not more. */
#define READS_OF_DEAD 256

enum session_state { SESSION_HELLO, SESSION_OPEN, SESSION_CLOSING, SESSION_ENDED };

struct session {
	struct port port;
	const struct session_shared *shared;
	struct queue link;
	enum session_state state;
	bool is_handling; /* answers are sent together, afterwards */
	bool is_waiting;  /* for answers to go out, or for its next turn: not reading */
	bool is_dead;	  /* the process */
	bool has_hung_up;
	int socket, process;
	uint32_t version, pages; /* that were agreed on */
	struct event reading, writing, turn, deadline, death, ending;
	struct client *client;
	struct outbox outbox;
	struct inbox inbox;
	char program[64];
	char reason[160];
};

static void arm(struct event *timer, unsigned ms)
{
	struct timeval delay = { .tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000 };

	event_add(timer, &delay);
}

/* ---- The end ---------------------------------------------------------------------------------------------
 */

static void end(struct session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* May be called from anywhere, again too: the first reason counts. */
static void end(struct session *session, const char *format, ...)
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
	event_del(&session->deadline);
	session->socket = fd_close(session->socket);
	outbox_clear(&session->outbox);
	arm(&session->ending, 0);
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
		arm(&session->ending, session->shared->lease_look_ms);
		return;
	}
	event_del(&session->death);
	session->client = session->client ? client_free(session->client) : NULL;
	session->shared->over(session, session->shared->argument);
}

static void tell(const struct session *session, enum event_kind kind, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Of a connection that the daemon has ended: why, and what follows. */
static void tell(const struct session *session, enum event_kind kind, const char *format, ...)
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
static enum event_kind refusal_of(const struct session *session)
{
	bool ends_epoch = session->client && client_has_epochs(session->client);

	return ends_epoch ? EVENT_RANK_REFUSED : EVENT_CLIENT_REFUSED;
}

/* The other ranks want to know it. Where there are none, nobody does, and finding out takes longer than all
 * else of a connection that comes and goes. */
static const char *why_it_ended(const struct session *session, const char *otherwise)
{
	bool is_rank = session->client && client_has_jobs(session->client);

	return is_rank && peer_is_dying(session->port.pid, session->process) ? "its process died" : otherwise;
}

/* ---- Answers ---------------------------------------------------------------------------------------------
 */

static void flush(struct session *session)
{
	int r;

	if (session->state == SESSION_ENDED)
		return;
	r = outbox_send(&session->outbox, session->socket);
	if (r == -EAGAIN)
		event_add(&session->writing, NULL);
	else if (r < 0)
		end(session, "%s", why_it_ended(session, "its connection broke"));
	else if (session->state == SESSION_CLOSING)
		end(session, "it was refused");
}

static void send_message(struct session *session, enum frame_type type, uint32_t request,
			 const ProtobufCMessage *message, const int *fds, unsigned fd_count)
{
	uint8_t *frame;
	size_t length;
	int r;

	if (session->state >= SESSION_CLOSING)
		return;
	r = frame_encode(session->version, type, request, message, &frame, &length);
	/* A reload may have made the maximum less than what waits already. */
	if (r == 0 && session->outbox.bytes + length > session->shared->maximum_output) {
		free(frame);
		r = -ENOBUFS;
	} else if (r == 0) {
		r = outbox_push(&session->outbox, frame, length, fds, fd_count);
	}
	if (r == -ENOBUFS) {
		size_t unread = session->outbox.bytes;

		end(session, "it did not read its answers");
		tell(session, refusal_of(session), "it leaves %zu bytes of answers unread", unread);
	} else if (r < 0) {
		end(session, "it could not be answered");
		tell(session, EVENT_CLIENT_LOST, "it cannot be answered: %s", strerror(-r));
	} else if (!session->is_handling) {
		flush(session);
	}
	if (session->is_waiting && session->state < SESSION_CLOSING)
		arm(&session->turn, 0);
}

static void send_reply(struct port *port, uint32_t request, const Tierd__Wire__Reply *body, const int *fds,
		       unsigned fd_count)
{
	send_message(container_of(port, struct session, port), FRAME_REPLY, request, &body->base, fds,
		     fd_count);
}

static void send_event(struct port *port, const Tierd__Wire__Event *body)
{
	send_message(container_of(port, struct session, port), FRAME_EVENT, 0, &body->base, NULL, 0);
}

static void close_port(struct port *port, const char *reason)
{
	end(container_of(port, struct session, port), "%s", reason);
}

static bool has_dead_process(const struct port *port)
{
	const struct session *session = container_of(port, struct session, port);

	return peer_is_dying(port->pid, session->process);
}

/* Long before it has enough: its own answers are to find room. */
static bool has_room(const struct port *port)
{
	const struct session *session = container_of(port, struct session, port);

	return session->outbox.bytes < session->shared->maximum_output / 4;
}

static const struct port_ops session_port_ops = {
	.reply = send_reply,
	.event = send_event,
	.close = close_port,
	.is_dead = has_dead_process,
	.has_room = has_room,
};

/* An answer to a broken Hello is a HelloReply; to anything else, a Reply. */
static void send_refusal(struct session *session, uint32_t request, int r, char *text)
{
	Tierd__Wire__Status status = TIERD__WIRE__STATUS__INIT;
	Tierd__Wire__HelloReply hello = TIERD__WIRE__HELLO_REPLY__INIT;
	Tierd__Wire__Reply refusal = TIERD__WIRE__REPLY__INIT;

	status.code = status_from_errno(r);
	status.message = text;
	hello.status = refusal.status = &status;
	hello.daemon = (char *)"tierd " TIERD_VERSION;
	if (session->state == SESSION_HELLO)
		send_message(session, FRAME_HELLO_REPLY, request, &hello.base, NULL, 0);
	else
		send_message(session, FRAME_REPLY, request, &refusal.base, NULL, 0);
}

static void refuse(struct session *session, uint32_t request, int r, const char *format, va_list arguments)
{
	bool was_handling = session->is_handling;
	char text[512];

	if (session->state >= SESSION_CLOSING)
		return;
	vsnprintf(text, sizeof(text), format, arguments);
	tell(session, refusal_of(session), "%s", text);
	snprintf(session->reason, sizeof(session->reason), "it was refused: %.100s", text);

	session->is_handling = true;
	send_refusal(session, request, r, text);
	session->is_handling = was_handling;
	if (session->state == SESSION_ENDED)
		return;
	session->state = SESSION_CLOSING;
	event_del(&session->reading);
	event_del(&session->turn);
	arm(&session->deadline, session->shared->frame_ms);
	flush(session);
}

static void refuse_request(struct session *session, uint32_t request, int r, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static void refuse_request(struct session *session, uint32_t request, int r, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	refuse(session, request, r, format, arguments);
	va_end(arguments);
}

void session_refuse(struct session *session, int r, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	refuse(session, 0, r, format, arguments);
	va_end(arguments);
}

/* ---- Requests --------------------------------------------------------------------------------------------
 */

static void describe_program(struct session *session, const char *program)
{
	int used = snprintf(session->program, sizeof(session->program), "pid %d (uid %u%s%.24s",
			    session->port.pid, session->port.uid, *program ? ", " : "", program);

	snprintf(session->program + used, sizeof(session->program) - (size_t)used, ")");
	for (char *c = session->program; *c; c++)
		if (!isprint((unsigned char)*c))
			*c = '?';
}

static void send_hello_reply(struct session *session, uint32_t request)
{
	Tierd__Wire__Status status = TIERD__WIRE__STATUS__INIT;
	Tierd__Wire__HelloReply hello = TIERD__WIRE__HELLO_REPLY__INIT;

	hello.status = &status;
	hello.version = session->version;
	hello.pages = session->pages;
	hello.daemon = (char *)"tierd " TIERD_VERSION;
	hello.incarnation = session->shared->node->incarnation;
	send_message(session, FRAME_HELLO_REPLY, request, &hello.base, NULL, 0);
}

static void refuse_versions(struct session *session, uint32_t request, const char *what,
			    struct versions theirs, struct versions ours)
{
	refuse_request(session, request, -EPROTONOSUPPORT,
		       "the client speaks versions %u to %u of the %s, this tierd (" TIERD_VERSION
		       ") %u to %u; update the older of the two",
		       theirs.minimum, theirs.maximum, what, ours.minimum, ours.maximum);
}

/* Whatever it says is the peer's own: a job that others train goes on. */
static bool agree(struct session *session, uint32_t request, const Tierd__Wire__Hello *hello)
{
	const struct session_shared *shared = session->shared;
	struct versions versions = { hello->version_minimum, hello->version_maximum };
	struct versions pages = { hello->pages_minimum, hello->pages_maximum };

	session->version = versions_agree(shared->versions, versions);
	session->pages = versions_agree(shared->pages, pages);
	if (session->version == 0)
		refuse_versions(session, request, "protocol", versions, shared->versions);
	else if (session->pages == 0 && pages.maximum != 0)
		refuse_versions(session, request, "shared pages", pages, shared->pages);
	return session->state == SESSION_HELLO;
}

static void handle_hello(struct session *session, const struct frame_header *header, const uint8_t *bytes)
{
	ProtobufCMessage *message;
	const Tierd__Wire__Hello *hello;
	int r = frame_decode(session->shared->arena, &tierd__wire__hello__descriptor, bytes, header->length,
			     &message);

	if (r < 0) {
		refuse_request(session, header->request, r, "its Hello is malformed");
		return;
	}
	hello = (const Tierd__Wire__Hello *)message;
	describe_program(session, hello->program);
	if (!agree(session, header->request, hello))
		return;
	r = client_new(session->shared->node, &session->port, session->shared->maximum_requests,
		       &session->client);
	if (r < 0) {
		refuse_request(session, header->request, r, "no place for a client: %s", strerror(-r));
		return;
	}
	send_hello_reply(session, header->request);
	if (session->state == SESSION_HELLO)
		session->state = SESSION_OPEN;
}

static void handle_request(struct session *session, const struct frame_header *header, const uint8_t *bytes)
{
	ProtobufCMessage *message;
	int r;

	if (header->version != session->version) {
		refuse_request(session, header->request, -EPROTO, "a frame of version %u, agreed was %u",
			       header->version, session->version);
		return;
	}
	r = frame_decode(session->shared->arena, &tierd__wire__request__descriptor, bytes, header->length,
			 &message);
	if (r == -ENOMEM) {
		/* Well-formed, for all we know: the connection goes on. */
		port_reply_error(&session->port, header->request, -E2BIG,
				 "the request unpacks to more than tierd takes; cut it into smaller ones");
		return;
	}
	if (r < 0) {
		refuse_request(session, header->request, r, "a malformed request");
		return;
	}
	client_request(session->client, header->request, (const Tierd__Wire__Request *)message);
}

static void handle_frame(struct session *session, const struct frame_header *header, const uint8_t *bytes)
{
	enum frame_type expected = session->state == SESSION_HELLO ? FRAME_HELLO : FRAME_REQUEST;

	event_del(&session->deadline);
	if (header->type != expected)
		refuse_request(session, header->request, -EPROTO, "a frame of type %d, where %s is expected",
			       header->type, expected == FRAME_HELLO ? "a Hello" : "a Request");
	else if (session->state == SESSION_HELLO)
		handle_hello(session, header, bytes);
	else
		handle_request(session, header, bytes);
}

/* ---- Input -----------------------------------------------------------------------------------------------
 */

/* Who does not read his answers has nothing to ask. */
static bool has_enough(const struct session *session)
{
	return session->client && session->outbox.bytes > session->shared->maximum_output / 2;
}

static void stop_reading(struct session *session)
{
	session->is_waiting = true;
	event_del(&session->reading);
	event_del(&session->deadline);
}

static void go_on_reading(struct session *session)
{
	if (inbox_settle(&session->inbox) < 0) {
		end(session, "there was no memory for its request");
		tell(session, EVENT_CLIENT_LOST, "there is no memory for its request");
		return;
	}
	session->is_waiting = false;
	event_add(&session->reading, NULL);
	if (session->state == SESSION_OPEN && !inbox_is_empty(&session->inbox) &&
	    !event_pending(&session->deadline, EV_TIMEOUT, NULL))
		arm(&session->deadline, session->shared->frame_ms);
}

/* Up to one turn. 0: nothing complete is left; 1: something may be; or an error in what is left. */
static int handle_frames(struct session *session)
{
	struct frame_header header;
	const uint8_t *bytes;
	int r = 1;

	session->is_handling = true;
	for (unsigned i = 0; r > 0 && i < FRAMES_PER_TURN && session->state < SESSION_CLOSING; i++) {
		if (has_enough(session))
			break;
		r = inbox_next(&session->inbox, session->shared->maximum_frame, &header, &bytes);
		if (r > 0)
			handle_frame(session, &header, bytes);
	}
	session->is_handling = false;
	return r;
}

static void handle_input(struct session *session)
{
	int r = handle_frames(session);

	if (r == -EMSGSIZE)
		refuse_request(session, 0, r,
			       "a frame of more than %zu bytes: send less at once, or raise frame_size",
			       session->shared->maximum_frame);
	else if (r < 0)
		refuse_request(session, 0, r, "what it sends is not a frame of tierd's protocol");
	flush(session);
	if (session->state >= SESSION_CLOSING)
		return;
	if (r == 0) {
		go_on_reading(session);
		return;
	}
	stop_reading(session);
	if (!has_enough(session))
		arm(&session->turn, 0);
}

/* ---- The loop's calls ------------------------------------------------------------------------------------
 */

static void on_readable(evutil_socket_t fd, short what, void *argument)
{
	struct session *session = argument;
	int r = inbox_read(&session->inbox, session->socket);

	if (r == 0)
		handle_input(session);
	else if (r != -EAGAIN)
		end(session, "%s", why_it_ended(session, "it closed the connection"));
}

static void on_writable(evutil_socket_t fd, short what, void *argument)
{
	struct session *session = argument;

	flush(session);
	if (session->state == SESSION_OPEN)
		client_catch_up(session->client);
	if (session->is_waiting && session->state < SESSION_CLOSING)
		arm(&session->turn, 0);
}

static void on_turn(evutil_socket_t fd, short what, void *argument)
{
	struct session *session = argument;

	if (!has_enough(session))
		handle_input(session);
}

static void on_deadline(evutil_socket_t fd, short what, void *argument)
{
	struct session *session = argument;

	if (session->state == SESSION_HELLO)
		refuse_request(session, 0, -ETIMEDOUT, "no Hello within %u ms",
			       session->shared->first_frame_ms);
	else if (session->state == SESSION_OPEN)
		refuse_request(session, 0, -ETIMEDOUT, "a frame that is not complete after %u ms",
			       session->shared->frame_ms);
	else
		end(session, "it did not read its last answer");
}

/* What it sent before it died counts, as it does when the end of the stream is seen first. */
static void on_death(evutil_socket_t fd, short what, void *argument)
{
	struct session *session = argument;

	session->is_dead = true;
	event_del(&session->death);
	if (session->state == SESSION_ENDED) {
		arm(&session->ending, 0);
		return;
	}
	for (unsigned i = 0; i < READS_OF_DEAD && session->state < SESSION_CLOSING && !has_enough(session);
	     i++) {
		if (!session->is_waiting && inbox_read(&session->inbox, session->socket) < 0)
			break;
		handle_input(session);
	}
	end(session, "its process died");
}

/* ---- Life ------------------------------------------------------------------------------------------------
 */

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
	describe_program(session, "");
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
	arm(&session->deadline, session->shared->first_frame_ms);
	return 0;
}

int session_new(int socket, const struct session_shared *shared, struct session **ret_session)
{
	_cleanup_(session_freep) struct session *session = calloc(1, sizeof(*session));
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
	outbox_init(&session->outbox);

	r = look_at_peer(session);
	if (r < 0)
		return r;
	r = start_events(session);
	if (r < 0)
		return r;
	*ret_session = TAKE_PTR(session);
	return 0;
}

struct session *session_free(struct session *session)
{
	if (!session)
		return NULL;
	if (event_initialized(&session->reading)) {
		if (session->state != SESSION_ENDED)
			outbox_send(&session->outbox, session->socket);
		end(session, "%s", "");
		event_del(&session->death);
		event_del(&session->ending);
	}
	/* Without a reason of its own it is the daemon that ends. */
	if (session->client && !session->has_hung_up)
		client_hang_up(session->client, *session->reason ? session->reason : NULL);
	if (session->client)
		client_free(session->client);
	queue_remove(&session->link);
	outbox_clear(&session->outbox);
	fd_close(session->socket);
	fd_close(session->process);
	inbox_clear(&session->inbox);
	free(session->port.groups);
	free(session);
	return NULL;
}

bool session_is_silent(const struct session *session)
{
	return session->state == SESSION_HELLO;
}

bool session_is_going(const struct session *session)
{
	return session->state == SESSION_ENDED && !session->has_hung_up;
}

uid_t session_uid(const struct session *session)
{
	return session->port.uid;
}

struct queue *session_link(struct session *session)
{
	return &session->link;
}

struct session *session_from_link(struct queue *link)
{
	return queue_entry(link, struct session, link);
}
