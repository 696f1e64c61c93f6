#include "daemon/request/pending.h"

#include <event2/event.h>
#include <stdarg.h>
#include <stdio.h>

void pending_pool_init(struct pending_pool *pool, struct node *node, struct port *port,
		       const struct pending_listener *listener, struct pending *pendings, unsigned count)
{
	*pool = (struct pending_pool){ .node = node, .port = port, .listener = listener };
	queue_init(&pool->free);
	for (unsigned i = 0; i < count; i++)
		queue_push(&pool->free, &pendings[i].link);
}

struct pending *pending_new(struct pending_pool *pool, uint32_t number)
{
	struct queue *link = queue_pop(&pool->free);

	if (!link)
		return NULL;
	struct pending *pending = queue_entry(link, struct pending, link);

	*pending = (struct pending){ .pool = pool, .number = number };
	queue_init(&pending->link);
	queue_init(&pending->member_link);
	queue_init(&pending->waiter.link);
	pool->outstanding++;
	return pending;
}

void pending_drop(struct pending *pending)
{
	struct pending_pool *pool = pending->pool;

	if (pending->timer)
		event_free(pending->timer);
	pending->timer = NULL;
	pool->listener->ended(pending);
	queue_remove(&pending->waiter.link);
	queue_remove(&pending->member_link);
	queue_remove(&pending->link);
	queue_push(&pool->free, &pending->link);
	pool->outstanding--;
}

void pending_reply_fds(struct pending *pending, Tierd__Wire__Reply *body, const int *fds, unsigned fd_count)
{
	if (!pending->pool->is_silent)
		port_reply_fds(pending->pool->port, pending->number, body, fds, fd_count);
	pending_drop(pending);
}

void pending_reply(struct pending *pending, Tierd__Wire__Reply *body)
{
	pending_reply_fds(pending, body, NULL, 0);
}

void pending_error(struct pending *pending, int r, const char *format, ...)
{
	char message[1024];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	if (!pending->pool->is_silent)
		port_reply_error(pending->pool->port, pending->number, r, "%s", message);
	pending_drop(pending);
}

struct port *pending_port(const struct pending *pending)
{
	return pending->pool->port;
}

struct node *pending_node(const struct pending *pending)
{
	return pending->pool->node;
}
