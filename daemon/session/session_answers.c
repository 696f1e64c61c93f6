/* What a session says: answers, events, and why it refuses. */
#include "daemon/session/session_inside.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "daemon/session/peer.h"

void session_flush(struct session *session)
{
	int r;

	if (session->state == SESSION_ENDED)
		return;
	r = outbox_send(&session->outbox, session->socket);
	if (r == -EAGAIN)
		event_add(&session->writing, NULL);
	else if (r < 0)
		session_end(session, "%s", session_why_it_ended(session, "its connection broke"));
	else if (session->state == SESSION_CLOSING)
		session_end(session, "it was refused");
}

/* Of what was done elsewhere: the answer costs more than most requests. */
static void flush_at_once(struct session *session)
{
	struct throttle_turn turn = throttle_begin(session->throttle, clock_now_ns());

	session_flush(session);
	throttle_end(session->throttle, &turn);
}

void session_send(struct session *session, enum frame_type type, uint32_t request,
		  const ProtobufCMessage *message, const int *fds, unsigned fd_count)
{
	uint8_t *frame;
	size_t length;
	int r;

	if (session->state >= SESSION_CLOSING)
		return;
	r = frame_encode(session->version, type, request, message, &frame, &length);
	/* A reload may have made the maximum less than what waits already. */
	if (r == 0 && session->outbox.bytes + length > session->shared->limits.maximum_output) {
		free(frame);
		r = -ENOBUFS;
	} else if (r == 0) {
		r = outbox_push(&session->outbox, frame, length, fds, fd_count);
	}
	if (r == -ENOBUFS) {
		size_t unread = session->outbox.bytes;

		session_end(session, "it did not read its answers");
		session_tell(session, session_refusal_of(session), "it leaves %zu bytes of answers unread",
			     unread);
	} else if (r < 0) {
		session_end(session, "it could not be answered: %s", strerror(-r));
		session_tell(session, session_loss_of(session), "it cannot be answered: %s", strerror(-r));
	} else if (!session->is_handling) {
		flush_at_once(session);
	}
	if (session->is_waiting && session->state < SESSION_CLOSING)
		session_arm(&session->turn, 0);
}

static void send_reply(struct port *port, uint32_t request, const Tierd__Wire__Reply *body, const int *fds,
		       unsigned fd_count)
{
	session_send(container_of(port, struct session, port), FRAME_REPLY, request, &body->base, fds,
		     fd_count);
}

static void send_event(struct port *port, const Tierd__Wire__Event *body)
{
	session_send(container_of(port, struct session, port), FRAME_EVENT, 0, &body->base, NULL, 0);
}

static void close_port(struct port *port, const char *reason)
{
	session_end(container_of(port, struct session, port), "%s", reason);
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

	return session->outbox.bytes < session->shared->limits.maximum_output / 4;
}

const struct port_ops session_port_ops = {
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
		session_send(session, FRAME_HELLO_REPLY, request, &hello.base, NULL, 0);
	else
		session_send(session, FRAME_REPLY, request, &refusal.base, NULL, 0);
}

void session_refuse(struct session *session, uint32_t request, int r, const char *format, ...)
{
	bool was_handling = session->is_handling;
	char text[512];
	va_list arguments;

	if (session->state >= SESSION_CLOSING)
		return;
	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	session_tell(session, session_refusal_of(session), "%s", text);
	snprintf(session->reason, sizeof(session->reason), "it was refused: %.100s", text);

	session->is_handling = true;
	send_refusal(session, request, r, text);
	session->is_handling = was_handling;
	if (session->state == SESSION_ENDED)
		return;
	session->state = SESSION_CLOSING;
	event_del(&session->reading);
	event_del(&session->turn);
	queue_remove(&session->waiter.link);
	session_arm(&session->deadline, session->shared->limits.frame_ms);
	session_flush(session);
	/* What waits to be read would count for nobody, and could be many. */
	if (session->is_spare)
		session_end(session, "it was refused");
}
