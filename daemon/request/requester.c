#include "daemon/request/requester.h"

void requester_begin(struct requester *requester, struct pending *pending, struct queue *requesters)
{
	requester->pending = pending;
	requester->uid = pending_port(pending)->uid;
	queue_push(requesters, &requester->link);
}

void requester_end(struct requester *requester)
{
	queue_remove(&requester->link);
}

void requesters_forget(struct queue *requesters)
{
	for (struct queue *link = queue_pop(requesters); link; link = queue_pop(requesters)) {
		struct requester *requester = queue_entry(link, struct requester, link);

		pending_drop(TAKE_PTR(requester->pending));
	}
}
