/* A request of a client, and where its answer goes.
 *
 * A port is where answers and events to one client go: a session's socket in the daemon, a recorder in tests.
 * It also says who the client is, as the kernel tells. A pending is a request that has not been answered. It
 * comes from its client's pool, which has as many as a client may have requests outstanding, so nothing is
 * allocated for one. Whatever works at it keeps it in a queue of its own, and ends it once: with a reply,
 * with an error and a message, or dropped without an answer, when the client is gone. A requester is embedded
 * in what may outlive its client: work that is finished all the same, while nobody is told.
 *
 * session makes ports and pools; all modules take pendings and answer them. This module reports each end of
 * a request by the listener of its pool. It knows neither jobs nor sockets.
 *
 * Limits: the pendings of a pool; PORT_MAX_FDS descriptors with an answer; a message of 1,023 bytes. */
#ifndef TIERD_DAEMON_REQUEST_FRONT_H
#define TIERD_DAEMON_REQUEST_FRONT_H

#include "daemon/request/pending.h"
#include "daemon/request/port.h"
#include "daemon/request/refuse.h"
#include "daemon/request/requester.h"

#endif
