/* The request that opens a job, and its reply. */
#include <errno.h>
#include <string.h>

#include "client/library/joining/joining.h"

static void post_leave(struct tierd_node *node, uint32_t number)
{
	Tierd__Wire__JobLeave leave = TIERD__WIRE__JOB_LEAVE__INIT;

	leave.job = number;
	leave.at_once = true;
	connection_post(node, connection_number(node), WIRE_REQUEST(JOB_LEAVE, job_leave, &leave));
}

static void open_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	struct tierd_node *node = ticket->node;
	bool is_orphan = ticket->is_orphan;

	if (answer->status == 0)
		ticket->open.reply = *answer->reply->job_open;
	/* Events that name it may follow in the same packet. */
	if (answer->status == 0 && !is_orphan)
		ticket->open.job->number = ticket->open.reply.job;
	ticket_complete_answer(ticket, answer);
	/* No thread waits for the reply: the daemon must not keep the membership. */
	if (is_orphan && answer->status == 0)
		post_leave(node, answer->reply->job_open->job);
}

static const struct ticket_kind open_kind = {
	.name = "tierd_job_open",
	.body = TIERD__WIRE__REPLY__BODY_JOB_OPEN,
	.fd_count = 1,
	.answer = open_answer,
	.is_jobless = true,
};

static int adopt(struct tierd_job *job, struct tierd_ticket *ticket)
{
	const Tierd__Wire__JobOpenReply *reply = &ticket->open.reply;
	int r;

	mapping_free(&job->window_mapping);
	r = mapping_new_window(ticket->fd, reply->window_bytes, &job->window_mapping);
	if (r < 0) {
		post_leave(job->node, reply->job);
		return message_fail(r, "mapping the exchange window of job \"%s\": %s", job->name,
				    strerror(-r));
	}
	job->state =
		(struct tierd_job_state){ reply->status, reply->epoch, reply->step, reply->loss_scale, 0 };
	job->epoch = reply->epoch;
	job->incarnation = job->node->incarnation;
	return 0;
}

int job_open_call(struct tierd_job *job, const Tierd__Wire__Request *request, uint64_t deadline)
{
	struct tierd_ticket *ticket = NULL;
	int r = ticket_new(job->node, NULL, &open_kind, &ticket);

	if (r < 0)
		return r;
	ticket->open.job = job;
	r = ticket_ask(ticket, request, deadline);
	if (r < 0)
		return r;
	r = adopt(job, ticket);
	ticket_abandon(ticket);
	return r;
}

struct tierd_job *job_being_opened(const struct tierd_node *node, uint32_t number)
{
	QUEUE_FOREACH (link, &node->tickets) {
		const struct tierd_ticket *ticket = queue_entry(link, struct tierd_ticket, all);

		if (ticket->kind == &open_kind && !ticket->is_orphan && ticket->open.job->number == number)
			return ticket->open.job;
	}
	return NULL;
}
