/* What a session makes of the frames that it is sent: a Hello, then requests. */
#include "daemon/session/session_inside.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/session/client.h"
#include "daemon/resources/resources.h"
#include "daemon/session/request.h"

void session_describe_program(struct session *session, const char *program)
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
	session_send(session, FRAME_HELLO_REPLY, request, &hello.base, NULL, 0);
}

static void refuse_versions(struct session *session, uint32_t request, const char *what,
			    struct versions theirs, struct versions ours)
{
	session_refuse(session, request, -EPROTONOSUPPORT,
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
		session_refuse(session, header->request, r, "its Hello is malformed");
		return;
	}
	hello = (const Tierd__Wire__Hello *)message;
	session_describe_program(session, hello->program);
	if (agree(session, header->request, hello) && session->is_spare)
		session->shared->greeted(session, hello->pages_maximum != 0, session->shared->argument);
	if (session->state != SESSION_HELLO)
		return;
	r = client_new(session->shared->node, &session->port, session->shared->limits.maximum_requests,
		       &session->client);
	if (r < 0) {
		session_refuse(session, header->request, r, "no place for a client: %s", strerror(-r));
		return;
	}
	send_hello_reply(session, header->request);
	if (session->state == SESSION_HELLO)
		session->state = SESSION_OPEN;
}

static void handle_request(struct session *session, const struct frame_header *header, const uint8_t *bytes)
{
	const Tierd__Wire__Request *request;
	ProtobufCMessage *message;
	int r;

	if (header->version != session->version) {
		session_refuse(session, header->request, -EPROTO, "a frame of version %u, agreed was %u",
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
		session_refuse(session, header->request, r, "a malformed request");
		return;
	}
	request = (const Tierd__Wire__Request *)message;
	if (session->is_spare && !request_holds_nothing(request))
		port_reply_error(
			&session->port, header->request, -EBUSY,
			"user %u has all his connections in use, and this one more is only for looking, "
			"dropping, releasing, evicting and draining; end another one",
			session->port.uid);
	else
		client_request(session->client, header->request, request);
}

void session_handle_frame(struct session *session, const struct frame_header *header, const uint8_t *bytes)
{
	enum frame_type expected = session->state == SESSION_HELLO ? FRAME_HELLO : FRAME_REQUEST;

	event_del(&session->deadline);
	if (header->type != expected)
		session_refuse(session, header->request, -EPROTO, "a frame of type %d, where %s is expected",
			       header->type, expected == FRAME_HELLO ? "a Hello" : "a Request");
	else if (session->state == SESSION_HELLO)
		handle_hello(session, header, bytes);
	else
		handle_request(session, header, bytes);
}
