/* The server listens on the daemon's socket and keeps its sessions. */
#ifndef TIERD_DAEMON_SERVER_H
#define TIERD_DAEMON_SERVER_H

#include <stddef.h>
#include <sys/types.h>

#include "common/cleanup.h"

struct event_base;
struct node;
struct server;

struct server_limits {
	unsigned maximum_connections, maximum_per_user;
	unsigned maximum_requests; /* of a connection, unanswered; see client_new() */
	size_t maximum_output;	   /* bytes of answers that a client leaves unread; then it is cut off */
	size_t maximum_frame;	   /* bytes that it may send in one, the header included */
	unsigned first_frame_ms, frame_ms;
};

struct server_config {
	const char *path; /* of the socket; its folder is created if its parent exists */
	mode_t mode;	  /* of the socket: 0660 or 0600; the folder gets the search bits that go with it */
	int inherited; /* a socket that listens at path already, which the server takes; -1: there is none */
	struct server_limits limits;
};

/* Call it only while holding the daemon's lock: a socket file on which nobody listens is replaced.
 * -EADDRINUSE: somebody does. Errors are logged. */
int server_new(struct event_base *loop, struct node *node, const struct server_config *config,
	       struct server **ret_server);

/* From now on: requests_per_connection for new connections, the others for all. Nobody is sent away at once.
 */
void server_limit(struct server *server, const struct server_limits *limits);

/* Accepts nobody any more and removes the socket file, unless it was inherited; sessions go on. */
void server_close(struct server *server);

/* Ends all sessions, after what the sockets still take. */
struct server *server_free(struct server *server);
DEFINE_FREEP(struct server *, server_free)

#endif
