/* An intrusive doubly linked list: the element embeds its link, nothing is allocated. */
#ifndef TIERD_COMMON_QUEUE_H
#define TIERD_COMMON_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#include "common/cleanup.h"

struct queue {
	struct queue *next, *previous;
};

static inline void queue_init(struct queue *queue)
{
	queue->next = queue->previous = queue;
}

static inline bool queue_is_empty(const struct queue *queue)
{
	return queue->next == queue;
}

static inline void queue_push(struct queue *queue, struct queue *link)
{
	link->previous = queue->previous;
	link->next = queue;
	queue->previous->next = link;
	queue->previous = link;
}

static inline void queue_push_front(struct queue *queue, struct queue *link)
{
	queue_push(queue->next, link);
}

/* A removed link is empty itself, so removing it again does nothing. */
static inline void queue_remove(struct queue *link)
{
	link->previous->next = link->next;
	link->next->previous = link->previous;
	queue_init(link);
}

static inline struct queue *queue_first(const struct queue *queue)
{
	return queue_is_empty(queue) ? NULL : queue->next;
}

static inline struct queue *queue_pop(struct queue *queue)
{
	struct queue *link = queue_first(queue);

	if (link)
		queue_remove(link);
	return link;
}

#define queue_entry(link, type, member) container_of(link, type, member)

/* The body may remove the current element. */
#define QUEUE_FOREACH(item, list)                                                                            \
	for (struct queue *item = (list)->next, *next_##item = item->next; item != (list);                   \
	     item = next_##item, next_##item = item->next)

#endif
