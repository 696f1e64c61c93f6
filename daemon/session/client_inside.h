/* The inside of a client; for client.c and request.c. */
#ifndef TIERD_DAEMON_CLIENT_INSIDE_H
#define TIERD_DAEMON_CLIENT_INSIDE_H

#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "daemon/session/client.h"
#include "daemon/telemetry/telemetry.h"

#define CLIENT_MAX_MEMBERS 64

struct client {
	struct memberships jobs;
	struct queue readers, verifies;
	struct queue requesters;
	uint32_t next_handle;
	struct watch watch;
	struct tracer tracer;
	unsigned maximum_requests;
	struct pending_pool pool; /* silent once the client has hung up */
	struct pending pendings[];
};

#endif
