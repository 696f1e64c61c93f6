#include "daemon/request/asker.h"

void asker_begin(struct asker *asker, struct pending *pending, struct queue *askers)
{
	asker->pending = pending;
	asker->uid = pending_port(pending)->uid;
	queue_push(askers, &asker->link);
}

void asker_end(struct asker *asker)
{
	queue_remove(&asker->link);
}

void askers_forget(struct queue *askers)
{
	for (struct queue *link = queue_pop(askers); link; link = queue_pop(askers)) {
		struct asker *asker = queue_entry(link, struct asker, link);

		pending_drop(TAKE_PTR(asker->pending));
	}
}
