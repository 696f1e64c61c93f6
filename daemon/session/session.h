/* Session: connections, and the requests that come over them.
 *
 * The server accepts (server.c). A session is one connection: it turns bytes into requests and answers into
 * bytes, and watches the process at the other end by a pidfd (session.c, inbox.c, outbox.c, peer.c). A client
 * (client.c) is what a connection stands for: its ranks, readers, watches and traces, which end with it.
 * request.c finds the rank that a request is about, and calls the module that serves it; answers come back
 * through the client's port (daemon/request).
 *
 * Nothing that arrives is trusted: a frame has a limit of size and of time, a client of requests and of
 * output, and who breaks the protocol loses the connection, never the daemon. What the loop does for a user
 * is counted (throttle.c): a user who is ahead of others rests, as long as others want something.
 *
 * Only main is above. */
#ifndef TIERD_DAEMON_SESSION_H
#define TIERD_DAEMON_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/queue.h"
#include "daemon/request/request.h"
#include "daemon/session/server.h"

struct event_base;
struct node;
struct session;
struct throttles;

/* What all sessions of a server share; borrowed. */
struct session_shared {
	struct event_base *loop;
	struct node *node;
	struct frame_arena *arena;
	struct throttles *throttles;
	struct versions versions, pages; /* that this daemon speaks, and lays out */
	struct server_limits limits;
	unsigned lease_look_ms; /* between two looks whether an ended session's leases are gone */
	/* Runs on the loop, once: the connection has ended and nothing of its process is in use any more. The
	 * owner calls session_free(), there or later. */
	void (*over)(struct session *session, void *argument);
	/* Runs when a spare one says hello, which may be reason to refuse it; is_trainer: it means to map
	 * what jobs share. */
	void (*greeted)(struct session *session, bool is_trainer, void *argument);
	void *argument;
};

/* Takes the socket, also on failure. -ESRCH: the peer is dead already. */
int session_new(int socket, const struct session_shared *shared, struct session **ret_session);

/* Its client hears nothing after what it has been answered; session_free() may follow. */
void session_close(struct session *session);

/* Ends it at once, without calling over(). */
struct session *session_free(struct session *session);
DEFINE_FREEP(struct session *, session_free)

#endif
