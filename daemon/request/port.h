/* A port is where answers go: a session's socket in the daemon, a recorder in tests. */
#ifndef TIERD_DAEMON_PORT_H
#define TIERD_DAEMON_PORT_H

#include <stdbool.h>
#include <sys/types.h>

#include "proto/frame.h"
#include "proto/status.h"

struct port;

struct port_ops {
	/* Packs and queues; descriptors (at most PORT_MAX_FDS) are duplicated, the caller keeps its own.
	 * Sending never calls back: a client that is gone or too slow is dealt with by the loop later. */
	void (*reply)(struct port *port, uint32_t request, const Tierd__Wire__Reply *reply, const int *fds,
		      unsigned fd_count);
	void (*event)(struct port *port, const Tierd__Wire__Event *event);
	/* Ends the connection soon, from the loop. */
	void (*close)(struct port *port, const char *reason);
	/* The process at the other end has died, though the loop may not have come to it yet. NULL: it never
	 * has.
	 */
	bool (*is_dead)(const struct port *port);
	/* Little of what was sent is still unread. NULL: never much. */
	bool (*has_room)(const struct port *port);
};

#define PORT_MAX_FDS 8
#define PORT_FAREWELLS 4

/* Why the peer has lost a job that it had opened. It may not have read that yet. */
struct farewell {
	uint32_t handle; /* of the job on the connection; 0: none */
	char reason[160];
};

/* Embedded first in what implements it. */
struct port {
	const struct port_ops *ops;
	uid_t uid; /* of the peer, as the kernel tells */
	gid_t gid;
	pid_t pid;
	gid_t *groups; /* beside gid */
	unsigned group_count;
	struct farewell farewells[PORT_FAREWELLS]; /* the last ones */
	unsigned farewell_count;		   /* ever */
};

bool port_is_dead(const struct port *port);
bool port_has_room(const struct port *port);

/* Remembers why the peer has lost a job, for requests that are on their way. */
void port_note_farewell(struct port *port, uint32_t handle, const char *reason);
/* NULL: the job was never open on this connection, the peer has left it itself, or lost it long ago. */
const char *port_find_farewell(const struct port *port, uint32_t handle);

/* Sends a reply with a body (or without: NULL), status 0. */
void port_reply(struct port *port, uint32_t request, Tierd__Wire__Reply *body);
void port_reply_fds(struct port *port, uint32_t request, Tierd__Wire__Reply *body, const int *fds,
		    unsigned fd_count);

/* Sends a reply with status r < 0 and a message for a person: the thing, the cause, the remedy. */
void port_reply_error(struct port *port, uint32_t request, int r, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#endif
