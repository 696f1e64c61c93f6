/* Drain: jobs come to their end, and no new ones begin, because an administrator or the service says so. */
#include "daemon/life/life.h"

#include <errno.h>

#include "daemon/model/model.h"
#include "daemon/durability/durability.h"
#include "daemon/telemetry/telemetry.h"

/* Whoever drains means to end tierd soon. */
static void commit_all(struct node *node)
{
	QUEUE_FOREACH (link, &node->jobs.live)
		durable_hurry(queue_entry(link, struct job, link));
}

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
	if (node->is_draining)
		commit_all(node);
	pending_reply(pending, NULL);
}
