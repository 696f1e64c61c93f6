/* Values that ranks write between two steps. The ticket is that of a step: when it is reduced, the ranks may
 * write. */
#include <errno.h>

#include "client/library/calls/calls.h"
#include "common/clock.h"

/* ---- One thread at a time ---- */

static int enter(struct tierd_job *job)
{
	int r = job_enter(job, JOB_READY);

	if (r < 0)
		return r;
	if (!job->is_writing_busy) {
		job->is_writing_busy = true;
		return 0;
	}
	r = message_fail(-EALREADY,
			 "job \"%s\": another thread is in tierd_write_begin, tierd_write_end or "
			 "tierd_write_cancel",
			 job->name);
	connection_exit(job->node);
	return r;
}

static int leave(struct tierd_job *job, int r)
{
	job->is_writing_busy = false;
	return job_finish(job, r);
}

/* The ticket is taken out of the job while a thread waits for it: another thread may begin an epoch, which
 * abandons the job's tickets. */
static int await(struct tierd_job *job, struct tierd_ticket **ticket_at, enum tierd_event event)
{
	struct tierd_ticket *ticket = TAKE_PTR(*ticket_at);
	int r = ticket_await(ticket, event, connection_deadline(job->node, -1));
	bool goes_on = r == -ETIMEDOUT || (r == 0 && event == TIERD_REDUCED);

	if (goes_on && ticket->epoch == job->epoch)
		*ticket_at = ticket;
	else
		ticket_abandon(ticket);
	return r;
}

/* ---- Begin ---- */

static int send_begin(struct tierd_job *job)
{
	Tierd__Wire__WriteBegin begin = TIERD__WIRE__WRITE_BEGIN__INIT;
	struct tierd_ticket *ticket = NULL;
	int r = step_ticket_new(job, "values are written", &ticket);

	if (r < 0)
		return r;
	ticket->is_reducing = true;
	begin.job = job->number;
	begin.epoch = job->epoch;
	r = step_ticket_send(ticket, WIRE_REQUEST(WRITE_BEGIN, write_begin, &begin));
	if (r < 0)
		return r;
	job->writing = ticket;
	job->writing_state = WRITING_BEGUN;
	return 0;
}

static int begin_once(struct tierd_job *job)
{
	int r = enter(job);

	if (r < 0)
		return r;
	if (job->writing_state >= WRITING_OPEN)
		r = message_fail(-EBUSY, "job \"%s\": values are written already; call tierd_write_end first",
				 job->name);
	else if (!job->writing)
		r = send_begin(job);
	if (r == 0) {
		r = await(job, &job->writing, TIERD_REDUCED);
		if (!job->writing)
			job->writing_state = WRITING_NONE;
		else if (r == 0)
			job->writing_state = WRITING_OPEN;
	}
	return leave(job, r);
}

int tierd_write_begin(struct tierd_job *job)
{
	int r = CHECK_GIVEN(job);

	return r < 0 ? r : JOB_REPEAT(begin_once(job));
}

/* ---- End ---- */

static int send_end(struct tierd_job *job, bool is_cancelled)
{
	Tierd__Wire__WriteEnd end = TIERD__WIRE__WRITE_END__INIT;
	struct tierd_ticket *ticket = NULL;
	int r = ticket_new(job->node, job, &ticket_plain, &ticket);

	if (r < 0)
		return r;
	end.job = job->number;
	end.epoch = job->epoch;
	end.is_cancelled = is_cancelled;
	r = ticket_send(ticket, WIRE_REQUEST(WRITE_END, write_end, &end));
	if (r < 0)
		return r;
	job->writing_end = ticket;
	job->writing_state = is_cancelled ? WRITING_CANCELLING : WRITING_ENDING;
	return 0;
}

/* The request is sent once: a call after one that timed out waits for the same reply. */
static int tell_end(struct tierd_job *job, bool is_cancelled)
{
	int r = job->writing_end ? 0 : send_end(job, is_cancelled);

	if (r < 0)
		return r;
	r = await(job, &job->writing_end, TIERD_DONE);
	/* Another thread may have begun an epoch meanwhile, which forgets the writing. */
	if (job->writing_state == WRITING_NONE)
		return r;
	if (r == 0)
		job->writing_state =
			job->writing_state == WRITING_CANCELLING ? WRITING_CANCELLED : WRITING_ENDED;
	else if (!job->writing_end)
		job->writing_state = WRITING_OPEN;
	return r;
}

static int await_end(struct tierd_job *job)
{
	uint64_t start = clock_now_ns();
	int r = await(job, &job->writing, TIERD_DONE);

	job->step_wait_ns += clock_now_ns() - start;
	return r;
}

static int end_once(struct tierd_job *job, bool is_cancelled, struct tierd_ticket **ret_ticket)
{
	int r = enter(job);

	if (r < 0)
		return r;
	if (job->writing_state < WRITING_OPEN)
		r = message_fail(-EBUSY, "job \"%s\": no values are written; call tierd_write_begin first",
				 job->name);
	else if (job->writing_state < WRITING_ENDED)
		r = tell_end(job, is_cancelled);
	if (r == 0 && is_cancelled && job->writing_state == WRITING_ENDED)
		r = message_fail(
			-EBUSY,
			"job \"%s\": tierd_write_end has ended this rank's part; call that again, to "
			"wait for the others",
			job->name);
	else if (r == 0 && !job->writing)
		r = message_fail(-ESTALE, "the epoch in which job \"%s\" was written has ended", job->name);
	else if (r == 0 && is_cancelled)
		writing_forget(job);
	else if (r == 0 && ret_ticket)
		*ret_ticket = TAKE_PTR(job->writing);
	else if (r == 0)
		r = await_end(job);
	if (!job->writing)
		writing_forget(job);
	return leave(job, r);
}

int tierd_write_end(struct tierd_job *job, struct tierd_ticket **ret_ticket)
{
	int r = CHECK_GIVEN(job);

	return r < 0 ? r : JOB_REPEAT(end_once(job, false, ret_ticket));
}

int tierd_write_cancel(struct tierd_job *job)
{
	int r = CHECK_GIVEN(job);

	return r < 0 ? r : JOB_REPEAT(end_once(job, true, NULL));
}
