#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/library/joining/gpu_attach.h"
#include "client/library/joining/reopen.h"
#include "client/library/pages/buffers.h"

/* For planning and initializing, beyond the time in which the ranks have to come. */
#define READY_MARGIN_MS 10000

/* ---- Ready ---- */

static void end_rejoining(struct tierd_job *job)
{
	if (job->membership == MEMBER_REOPENED)
		job->membership = MEMBER;
}

static void begin_epoch(struct tierd_job *job, const Tierd__Wire__JobReadyReply *reply)
{
	ticket_settle_silent(job, job->node->last_request);
	writing_forget(job);
	gradients_recover(job);
	job->refused_pushes = 0;
	job->push_error = 0;
	job->state =
		(struct tierd_job_state){ reply->status, reply->epoch, reply->step, reply->loss_scale, 0 };
	job->epoch = reply->epoch;
	job->is_paced = reply->durability_seconds > 0;
	job->awaited = reply->step;
	job->is_stale = job->has_undecided = false;
	end_rejoining(job);
	job->lost_work = NULL;
	job->attachment->live_epoch = reply->epoch;
	job->ready_units = job->unit_count;
}

/* Names the phase again, because the daemon may be another one. */
static void restore_phase(struct tierd_job *job)
{
	Tierd__Wire__Phase phase = TIERD__WIRE__PHASE__INIT;

	if (*job->phase == '\0')
		return;
	phase.job = job->number;
	phase.name = job->phase;
	connection_post(job->node, connection_number(job->node), WIRE_REQUEST(PHASE, phase, &phase));
}

static void finish(struct tierd_ticket *ticket, int r, const char *text)
{
	struct tierd_job *job = ticket->job;

	job->is_getting_ready = false;
	if (r == 0) {
		job->state.gpu_bytes = job->attachment->gpu ? job->attachment->gpu->table.bytes : 0;
		job->has_abandoned_ready = ticket->is_orphan;
		ticket->state = job->state;
	}
	ticket_complete(ticket, TIERD_DONE, r, text);
}

static void ready_granted(struct tierd_ticket *ticket, const struct answer *answer)
{
	struct tierd_job *job = ticket->job;
	const Tierd__Wire__JobReadyReply *reply = answer->reply->job_ready;
	int r = 0;

	if (ticket->fd_count > 0)
		r = attachment_new(job, reply, answer->fds);
	if (r == -EPROTO)
		ticket_violation(ticket, "pages of another layout");
	if (r == -EPROTO || r == -EPROTONOSUPPORT)
		return;
	if (r == 0) {
		begin_epoch(job, reply);
		if (ticket->fd_count > 0) {
			attachment_collect(job);
			restore_phase(job);
		}
	}
	if (r < 0 || !gpu_attach_ask(ticket))
		finish(ticket, r, "mapping the job's memory failed");
}

static void ready_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	struct tierd_job *job = ticket->job;

	if (ticket->is_attaching) {
		if (gpu_attach_answer(ticket, answer))
			finish(ticket, 0, NULL);
		return;
	}
	/* The values of the job are lost: the rank may write others, which it could not while the job is
	 * stale. */
	if (answer->status == -ENODATA)
		job->is_stale = false;
	/* After -ENOENT nothing could follow; but this rank may return once more. */
	if (answer->status == -ENOENT && job->membership == MEMBER_SENT_AWAY)
		finish(ticket, -ESTALE, answer->text);
	else if (answer->status < 0)
		finish(ticket, answer->status, answer->text);
	else if (answer->reply->body_case != TIERD__WIRE__REPLY__BODY_JOB_READY)
		ticket_violation(ticket, "another reply");
	else if (answer->reply->job_ready->unit_count != job->unit_count)
		ticket_violation(ticket, "other units");
	else
		ready_granted(ticket, answer);
}

static int ready_begin(struct tierd_job *job, int timeout_ms, struct tierd_ticket **ret_ticket)
{
	struct tierd_node *node = job->node;
	Tierd__Wire__JobReady ready = TIERD__WIRE__JOB_READY__INIT;
	struct tierd_ticket *ticket = NULL;
	int r;

	gradients_settle(job);
	if (job->is_getting_ready)
		return message_fail(-EALREADY,
				    "job \"%s\": an earlier tierd_job_ready still waits for the other ranks",
				    job->name);
	gradients_drop(job);
	r = job_return(job);
	if (r < 0)
		return r;
	if (job->unit_count == 0)
		return message_fail(-EINVAL, "job \"%s\" has no units; call tierd_unit_define first",
				    job->name);
	ready.job = job->number;
	ready.timeout_ms = timeout_ms >= 0 ? timeout_ms : node->timeout_ms;
	r = ticket_new(node, job, &ready_kind, &ticket);
	if (r < 0)
		return r;
	if (job_is_attached(job))
		ticket->fd_count = 0;
	job->is_getting_ready = true;
	r = ticket_send(ticket, WIRE_REQUEST(JOB_READY, job_ready, &ready));
	if (r < 0)
		job->is_getting_ready = false;
	else
		*ret_ticket = ticket;
	return r;
}

/* At the timeout the daemon replies which ranks are missing. The library waits a little longer than that. */
static uint64_t ready_deadline(const struct tierd_node *node, int timeout_ms)
{
	if (timeout_ms < 0)
		timeout_ms = node->timeout_ms;
	if (timeout_ms < 0 || timeout_ms > INT32_MAX - READY_MARGIN_MS)
		return CONNECTION_NEVER;
	return connection_deadline(node, timeout_ms + READY_MARGIN_MS);
}

static bool is_answered(const void *argument)
{
	const struct tierd_job *job = argument;

	return !job->is_getting_ready;
}

/* 1: an earlier call has timed out, and its reply, which has come, counts for this call. 0: there is none. */
static int take_abandoned(struct tierd_job *job, uint64_t deadline)
{
	int r = 0;

	if (job->is_getting_ready && ticket_is_given_up(job, &ready_kind))
		r = connection_wait(job->node, is_answered, job, deadline);
	if (r < 0 && r != -ETIMEDOUT)
		return r;
	if (!job->has_abandoned_ready || job->is_stale)
		return 0;
	job->has_abandoned_ready = false;
	return 1;
}

int job_ready_locked(struct tierd_job *job, int timeout_ms, struct tierd_job_state *ret_state)
{
	struct tierd_ticket *ticket = NULL;
	int r = take_abandoned(job, connection_deadline(job->node, timeout_ms));

	if (r == 1) {
		*ret_state = job->state;
		return 0;
	}
	if (r == 0)
		r = ready_begin(job, timeout_ms, &ticket);
	if (r < 0)
		return r;
	r = ticket_await(ticket, TIERD_DONE, ready_deadline(job->node, timeout_ms));
	if (r == 0)
		*ret_state = ticket->state;
	ticket_abandon(ticket);
	return r;
}

static int begin_abandoned(struct tierd_job *job, struct tierd_ticket **ret_ticket)
{
	struct tierd_ticket *ticket = NULL;
	int r = ticket_new(job->node, job, &ready_kind, &ticket);

	if (r < 0) {
		job->has_abandoned_ready = true;
		return r;
	}
	ticket->state = job->state;
	ticket_complete(ticket, TIERD_DONE, 0, NULL);
	*ret_ticket = ticket;
	return 0;
}

int job_ready_begin_locked(struct tierd_job *job, int timeout_ms, struct tierd_ticket **ret_ticket)
{
	int r = take_abandoned(job, 0);

	if (r == 0)
		return ready_begin(job, timeout_ms, ret_ticket);
	return r == 1 ? begin_abandoned(job, ret_ticket) : r;
}

/* ---- Going on ---- */

static bool has_rejoined(const void *argument)
{
	const struct tierd_job *job = argument;

	return !job->is_rejoining;
}

static int rejoin(struct tierd_job *job)
{
	struct tierd_job_state state;
	int r;

	job->is_rejoining = true;
	r = job_ready_locked(job, -1, &state);
	job->is_rejoining = false;
	pthread_cond_broadcast(&job->node->changed);
	if (r == 0 || r == -ETIMEDOUT || job->node->error)
		return r;
	end_rejoining(job);
	job->is_stale = true;
	snprintf(
		job->stale_text, sizeof(job->stale_text),
		"the connection to tierd was lost, and job \"%s\" cannot go on: %.300s; call tierd_job_ready",
		job->name, tierd_message());
	return message_fail_text(-ESTALE, job->stale_text);
}

int job_rejoin(struct tierd_job *job)
{
	int r = 0;

	while (r == 0 && job->membership == MEMBER_REOPENED)
		r = job->is_rejoining ? connection_wait(job->node, has_rejoined, job,
							connection_deadline(job->node, -1))
				      : rejoin(job);
	return r;
}

const struct ticket_kind ready_kind = {
	.name = "tierd_job_ready",
	.fd_count = ATTACHMENT_FDS,
	.answer = ready_answer,
	.begins_epoch = true,
};
