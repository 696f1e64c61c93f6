/* What all calls of a reader share: the check of its connection, the lock on its window, and a request that
 * waits for its reply. */
#include <errno.h>
#include <stdlib.h>

#include "client/library/calls/calls.h"
#include "client/library/calls/reader.h"

/* A reader ends with the connection over which it was opened, also if the node has connected again. */
int reader_check(const struct tierd_reader *reader)
{
	int r = connection_check(reader->node);

	if (r == 0 && reader->connections != reader->node->connections)
		r = message_fail(
			-ECONNRESET,
			"the connection of this reader of job \"%s\" was lost; close it and open another",
			reader->name);
	return r;
}

int reader_check_copied(struct tierd_reader *reader)
{
	connection_hear(reader->node);
	return reader_check(reader);
}

int reader_enter(struct tierd_reader *reader)
{
	int r = connection_enter(reader->node);

	if (r < 0)
		return r;
	r = reader_check(reader);
	if (r < 0)
		connection_exit(reader->node);
	return r;
}

/* Whether an abandoned request is not answered yet: the daemon takes one request of a reader at a time. */
static bool has_given_up(const struct tierd_reader *reader)
{
	QUEUE_FOREACH (link, &reader->node->tickets) {
		const struct tierd_ticket *ticket = queue_entry(link, struct tierd_ticket, all);

		if (ticket->is_orphan && ticket->reader == reader)
			return true;
	}
	return false;
}

static bool is_free(const void *argument)
{
	const struct tierd_reader *reader = argument;

	return !reader->is_busy && !has_given_up(reader);
}

/* One thread at a time uses the window. */
int reader_take(struct tierd_reader *reader, uint64_t *ret_deadline)
{
	struct tierd_node *node = reader->node;
	int r = reader_enter(reader);

	if (r < 0)
		return r;
	*ret_deadline = connection_deadline(node, -1);
	r = connection_wait(node, is_free, reader, *ret_deadline);
	if (r == 0) {
		reader->is_busy = true;
		return 0;
	}
	connection_exit(node);
	if (r == -ETIMEDOUT)
		return message_fail(
			r,
			"tierd still answers an earlier call with this reader of job \"%s\", or one of "
			"another thread",
			reader->name);
	return r;
}

void reader_give(struct tierd_reader *reader)
{
	reader->is_busy = false;
	pthread_cond_broadcast(&reader->node->changed);
	connection_exit(reader->node);
}

int reader_call(struct tierd_reader *reader, const struct ticket_kind *kind,
		const Tierd__Wire__Request *request, uint64_t deadline)
{
	struct tierd_ticket *ticket = NULL;
	int r = reader_ticket_new(reader, kind, &ticket);

	return r < 0 ? r : ticket_run(ticket, request, deadline);
}

int reader_ticket_new(struct tierd_reader *reader, const struct ticket_kind *kind,
		      struct tierd_ticket **ret_ticket)
{
	int r = reader_check(reader);

	if (r == 0)
		r = ticket_new(reader->node, NULL, kind, ret_ticket);
	if (r == 0)
		(*ret_ticket)->reader = reader;
	return r;
}

const struct ticket_kind reader_read_kind = { .name = "tierd_reader_read", .is_jobless = true };
