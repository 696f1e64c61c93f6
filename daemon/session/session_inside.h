/* The inside of a session; for session.c, session_answers.c and session_frames.c. */
#ifndef TIERD_DAEMON_SESSION_INSIDE_H
#define TIERD_DAEMON_SESSION_INSIDE_H

#include <event2/event.h>
#include <event2/event_struct.h>

#include "daemon/telemetry/telemetry.h"
#include "daemon/session/inbox.h"
#include "daemon/session/outbox.h"
#include "daemon/session/session.h"
#include "daemon/session/throttle.h"

enum session_state { SESSION_HELLO, SESSION_OPEN, SESSION_CLOSING, SESSION_ENDED };

struct session {
	struct port port;
	const struct session_shared *shared;
	struct queue link; /* of the server's */
	enum session_state state;
	bool is_handling; /* answers are sent together, afterwards */
	bool is_waiting;  /* for answers to go out, or for its next turn: not reading */
	bool is_spare;	  /* beyond its user's connections: it may only ask what request_holds_nothing() */
	bool is_dead;	  /* the process */
	unsigned reads_since; /* of what it had sent */
	bool has_hung_up;
	int socket, process;
	uint32_t version, pages; /* that were agreed on */
	struct event reading, writing, turn, deadline, death, ending;
	struct throttle *throttle;
	struct throttle_waiter waiter;
	struct client *client;
	struct outbox outbox;
	struct inbox inbox;
	char program[64];
	char reason[160];
};

/* ---- session.c ---- */

void session_arm(struct event *timer, unsigned ms);

/* May be called from anywhere, again too: the first reason counts. */
void session_end(struct session *session, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Tells why the daemon has ended the connection, and what follows. */
void session_tell(const struct session *session, enum event_kind kind, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* The kinds of event for that: the client broke a rule; the daemon could not serve it. */
enum event_kind session_refusal_of(const struct session *session);
enum event_kind session_loss_of(const struct session *session);
/* "its process died", if it did and the client has ranks; else what the caller says. */
const char *session_why_it_ended(const struct session *session, const char *otherwise);

/* ---- session_answers.c ---- */

extern const struct port_ops session_port_ops;

/* Sends what can be sent now. */
void session_flush(struct session *session);
void session_send(struct session *session, enum frame_type type, uint32_t request,
		  const ProtobufCMessage *message, const int *fds, unsigned fd_count);
/* Tells the client why and ends the session, on the loop. request: which one that answers; 0: none. */
void session_refuse(struct session *session, uint32_t request, int r, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

/* ---- session_frames.c ---- */

/* As its Hello names it, or "". */
void session_describe_program(struct session *session, const char *program);
void session_handle_frame(struct session *session, const struct frame_header *header, const uint8_t *bytes);

#endif
