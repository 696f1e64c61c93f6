#include "client/library/pages/window.h"

#include <errno.h>

#include "client/library/pages/ticket.h"

static bool window_is_free(const void *argument)
{
	const struct tierd_job *job = argument;

	return !job->is_window_busy;
}

int window_take(struct tierd_job *job, uint64_t deadline)
{
	int r = connection_wait(job->node, window_is_free, job, deadline);

	if (r == -ETIMEDOUT)
		return message_fail(r, "job \"%s\": another thread's tensor or blob is still being moved",
				    job->name);
	if (r == 0)
		job->is_window_busy = true;
	return r;
}

void window_give(struct tierd_job *job)
{
	job->is_window_busy = false;
	pthread_cond_broadcast(&job->node->changed);
}

/* If the ticket was abandoned, the daemon has used the window until now. */
static void window_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	if (ticket->is_orphan)
		window_give(ticket->job);
	if (answer->status == 0 && answer->reply->body_case == TIERD__WIRE__REPLY__BODY_BLOB)
		ticket->blob = *answer->reply->blob;
	ticket_complete(ticket, TIERD_DONE, answer->status, answer->text);
}

/* No reply will come that would give the window back. */
static void window_dispose(struct tierd_ticket *ticket)
{
	if (ticket->is_orphan && ticket->job && !ticket->events[TIERD_DONE].is_here)
		window_give(ticket->job);
}

static const struct ticket_kind window_kind = { .name = "a tensor or a blob",
						.answer = window_answer,
						.dispose = window_dispose };

int window_call(struct tierd_job *job, const Tierd__Wire__Request *request, uint64_t deadline,
		Tierd__Wire__BlobReply *ret_blob)
{
	struct tierd_ticket *ticket = NULL;
	int r = ticket_new(job->node, job, &window_kind, &ticket);

	if (r == 0)
		r = ticket_send(ticket, request);
	if (r < 0) {
		window_give(job);
		return r;
	}
	r = ticket_await(ticket, TIERD_DONE, deadline);
	/* Without a reply the daemon still uses the window. */
	if (r < 0 && ticket->events[TIERD_DONE].is_here)
		window_give(job);
	if (r == 0 && ret_blob)
		*ret_blob = ticket->blob;
	ticket_abandon(ticket);
	return r;
}
