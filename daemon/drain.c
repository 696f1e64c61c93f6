#include "daemon/drain.h"

#include <errno.h>

#include "daemon/access.h"

void drain_node(struct pending *pending, const Tierd__Wire__NodeDrain *request)
{
	const struct port *port = pending_port(pending);
	struct node *node = pending_node(pending);

	if (!access_may_rule(node, port)) {
		pending_error(pending, -EPERM,
			      "tierd is for its administrators to drain (administrators = in "
			      "the configuration), and for its own user");
		return;
	}
	if (node->is_draining == request->undo && request->undo)
		events_of_node(node, EVENT_DRAIN_ENDED, NULL, "user %u: jobs may be opened again",
			       (unsigned)port->uid);
	else if (node->is_draining == request->undo)
		events_of_node(node, EVENT_DRAINING, NULL,
			       "user %u: draining: no job is opened that no rank has open",
			       (unsigned)port->uid);
	node->is_draining = !request->undo;
	pending_reply(pending, NULL);
}
