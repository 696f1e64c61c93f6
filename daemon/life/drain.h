/* Drain: jobs come to their end, and no new ones begin, because an administrator or the service says so. */
#ifndef TIERD_DAEMON_DRAIN_H
#define TIERD_DAEMON_DRAIN_H

#include "daemon/request/request.h"

/* Answers the request, at once: who waits looks at the ranks that are left. */
void drain_node(struct pending *pending, const Tierd__Wire__NodeDrain *request);

#endif
