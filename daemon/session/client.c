#include "daemon/session/client.h"

#include <errno.h>
#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/life/life.h"
#include "daemon/model/model.h"
#include "daemon/request/request.h"
#include "daemon/scrub/scrub.h"
#include "daemon/session/client_inside.h"
#include "daemon/session/request.h"
#include "daemon/telemetry/telemetry.h"
#include "daemon/values/values.h"

/* For what is not a gather or a push: a client that has as many of those waiting as it may can still take
 * them back, close its step, or leave. Each membership can wait for its ready or two steps, and for a tensor;
 * each reader for one answer; the rest is answered at once. */
#define SPARE_PENDINGS (3 * CLIENT_MAX_MEMBERS + READER_MAX_PER_CLIENT + 16)

/* The answer is all that its rank has waited for; where that is a gather's, it is a stall. */
static void note_wait(const struct pending *pending)
{
	if (pending->waited_for != TRACE_NOTHING)
		trace_waited(pending->member->job, pending->waited_for, pending->member->rank, TRACE_NO_UNIT,
			     pending->asked_ns, clock_now_ns());
}

static void note_end(struct pending *pending)
{
	stall_end(pending);
	note_wait(pending);
}

static const struct pending_listener pending_listener = { .ended = note_end };

int client_new(struct node *node, struct port *port, unsigned maximum_requests, struct client **ret_client)
{
	unsigned pendings = maximum_requests + SPARE_PENDINGS;
	struct client *client = calloc(1, sizeof(*client) + pendings * sizeof(client->pendings[0]));

	if (!client || refusal_new(&client->jobs.refusal) < 0) {
		free(client);
		return -ENOMEM;
	}
	pending_pool_init(&client->pool, node, port, &pending_listener, client->pendings, pendings);
	client->maximum_requests = maximum_requests;
	queue_init(&client->jobs.members);
	queue_init(&client->readers);
	queue_init(&client->verifies);
	queue_init(&client->requesters);
	watch_init(&client->watch, port);
	tracer_init(&client->tracer, port);
	telemetry_clients(node)->connected++;
	*ret_client = client;
	return 0;
}

/* A daemon that ends takes nothing more of a rank, and refuses nothing: a step that it refused would leave
 * its pushes and its announcement behind. The end of the connection answers all of that. */
static bool comes_too_late(const struct client *client, const Tierd__Wire__Request *request)
{
	return client->pool.node->is_stopping && !request_holds_nothing(request);
}

/* Refusing is better than not reading on: what the client would say next may be what the others wait for. */
void client_request(struct client *client, uint32_t number, const Tierd__Wire__Request *request)
{
	bool has_room = client->pool.outstanding < client->maximum_requests || !request_may_wait(request);
	struct pending *pending;

	telemetry_clients(client->pool.node)->requests++;
	if (comes_too_late(client, request))
		return;
	pending = has_room ? pending_new(&client->pool, number) : NULL;
	if (!pending) {
		port_reply_error(
			client->pool.port, number, -EBUSY,
			"%u requests of this connection wait for their answers, and tierd takes no more; "
			"wait for some of them, or raise requests_per_connection",
			client->pool.outstanding);
		return;
	}
	request_handle(pending, request);
}

void client_catch_up(struct client *client)
{
	watch_catch_up(&client->watch);
}

/* ---- End ---- */

static struct member *first_present(struct client *client)
{
	QUEUE_FOREACH (link, &client->jobs.members) {
		struct member *member = queue_entry(link, struct member, client_link);

		if (!member->has_left)
			return member;
	}
	return NULL;
}

void client_hang_up(struct client *client, const char *reason)
{
	char text[160];

	if (client->pool.is_silent)
		return;
	client->pool.is_silent = true;
	watch_end(&client->watch);
	tracer_end(&client->tracer);
	readers_close_all(&client->readers);
	verify_forget_all(&client->verifies);
	requesters_forget(&client->requesters);
	/* From the start each time: a leaving member can take others with it. */
	for (struct member *member = first_present(client); member; member = first_present(client)) {
		if (reason)
			snprintf(text, sizeof(text), "rank %u (pid %d) is lost: %s", member->rank,
				 (int)member->pid, reason);
		else
			snprintf(text, sizeof(text), "the daemon ends");
		job_leave(member, false, text);
	}
	if (reason)
		refusal_tell(client->jobs.refusal, client->pool.node, NULL);
}

bool client_has_jobs(const struct client *client)
{
	return !queue_is_empty(&client->jobs.members);
}

bool client_has_epochs(const struct client *client)
{
	QUEUE_FOREACH (link, &client->jobs.members) {
		const struct member *member = queue_entry(link, struct member, client_link);

		if (!member->has_left && job_is_live(member->job))
			return true;
	}
	return false;
}

bool client_has_leases(const struct client *client)
{
	QUEUE_FOREACH (link, &client->jobs.members)
		if (member_has_leases(queue_entry(link, struct member, client_link)))
			return true;
	return false;
}

struct client *client_free(struct client *client)
{
	if (!client)
		return NULL;
	client_hang_up(client, "its session ended");
	for (struct queue *link = queue_pop(&client->jobs.members); link;
	     link = queue_pop(&client->jobs.members)) {
		struct member *member = queue_entry(link, struct member, client_link);

		member->client = NULL;
		member_release(member);
	}
	telemetry_clients(client->pool.node)->connected--;
	refusal_free(client->jobs.refusal);
	free(client);
	return NULL;
}
