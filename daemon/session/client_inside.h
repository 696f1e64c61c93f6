/* The inside of a client; for client.c and request.c. */
#ifndef TIERD_DAEMON_CLIENT_INSIDE_H
#define TIERD_DAEMON_CLIENT_INSIDE_H

#include "daemon/session/client.h"
#include "daemon/request/pending.h"
#include "daemon/model/member.h"
#include "daemon/telemetry/trace.h"
#include "daemon/telemetry/watch.h"

#define CLIENT_MAX_MEMBERS 64

struct client {
	struct node *node;
	struct port *port;
	bool has_hung_up;
	struct memberships jobs;
	struct queue readers, verifies;
	struct queue askers;
	uint32_t next_handle;
	struct watch watch;
	struct tracer tracer;
	struct queue free;
	unsigned outstanding, maximum_requests;
	struct pending pendings[];
};

#endif
