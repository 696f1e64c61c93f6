#include <errno.h>
#include <string.h>

#include "client/library/calls/calls.h"
#include "client/library/pages/hold.h"
#include "client/library/pages/left.h"
#include "common/clock.h"
#include "proto/name.h"
#include "proto/vocabulary.h"

/* ---- The hot path ---- */

static inline void note_gather(struct tierd_job *job, const struct attachment *attachment, uint32_t unit)
{
	atomic_fetch_add_explicit(&job->hot[unit].gathers, 1, memory_order_relaxed);
	if (trace_append(attachment->leases, &unit, 1))
		hold_ring(job);
}

/* 1, or 0: the daemon has to be asked. With TIERD_DEBUG=leases a negative errno, as of hold_take(). */
static inline int gather_at_once(struct tierd_job *job, uint32_t unit, struct tierd_view *ret_parameters)
{
	const struct attachment *attachment;
	uint64_t offset, version;
	int r;

	if (UNLIKELY(!hold_is_possible(job, unit, &attachment)))
		return 0;
	r = hold_take(job, attachment, unit, &offset, &version);
	if (UNLIKELY(r != 1))
		return r;
	note_gather(job, attachment, unit);
	hold_show(job, attachment, unit, offset, version, ret_parameters);
	return 1;
}

static int gather_slowly(struct tierd_job *job, uint32_t unit, struct tierd_view *ret_parameters);

int tierd_gather(struct tierd_job *job, uint32_t unit, struct tierd_view *ret_parameters)
{
	if (LIKELY(job && ret_parameters) && LIKELY(gather_at_once(job, unit, ret_parameters) == 1))
		return 0;
	return gather_slowly(job, unit, ret_parameters);
}

static int fail_to_try(const struct tierd_job *job, uint32_t unit)
{
	if (job->generation != connection_generation)
		return message_fail_child();
	if (job->has_left)
		return left_fail(job);
	if (job->ready_units == 0)
		return message_fail(-EINVAL, "job \"%s\" is not ready; call tierd_job_ready first",
				    job->name);
	if (job_check_unit(job, unit) < 0)
		return -EINVAL;
	return message_fail_text(-EAGAIN, "the unit cannot be had at once; call tierd_gather, which waits "
					  "for it or says why not");
}

int tierd_gather_try(struct tierd_job *job, uint32_t unit, struct tierd_view *ret_parameters)
{
	int r = CHECK_GIVEN(job, ret_parameters);

	if (r < 0)
		return r;
	r = gather_at_once(job, unit, ret_parameters);
	if (r < 0)
		return message_fail(r, "opening the pages of unit \"%s\": %s", job->units[unit]->name,
				    strerror(-r));
	return r == 1 ? 0 : fail_to_try(job, unit);
}

/* ---- By message ---- */

static void encode(const struct tierd_ticket *ticket, Tierd__Wire__Gather *ret_gather)
{
	const struct tierd_job *job = ticket->job;

	tierd__wire__gather__init(ret_gather);
	ret_gather->job = job->number;
	ret_gather->epoch = job->epoch;
	ret_gather->unit = ticket->gather.unit;
	ret_gather->version = job_awaited(job, ticket->gather.unit);
	ret_gather->is_blocking = ticket->gather.is_blocking;
}

static void have(struct tierd_ticket *ticket, uint64_t offset, uint64_t version)
{
	ticket->gather.offset = offset;
	ticket->gather.version = version;
	ticket->gather.is_leased = true;
	ticket->gather.attachment = hold_newest(ticket->job);
	if (!ticket->gather.is_of_many)
		note_gather(ticket->job, ticket->gather.attachment, ticket->gather.unit);
	ticket_complete(ticket, TIERD_DONE, 0, NULL);
}

/* The daemon has counted the lease in this rank's lease page. */
static void gather_granted(struct tierd_ticket *ticket, const Tierd__Wire__GatherReply *reply)
{
	struct tierd_job *job = ticket->job;
	const struct attachment *attachment = hold_newest(job);
	uint32_t unit = ticket->gather.unit;
	int r = 0;

	if (reply->offset > attachment->arena_mapping.bytes ||
	    job->units[unit]->end > attachment->arena_mapping.bytes - reply->offset) {
		ticket_violation(ticket, "a place outside the arena");
		return;
	}
	if (attachment->debug)
		r = debug_take(attachment->debug, unit, reply->offset);
	if (r < 0)
		hold_take_back(job, attachment, unit);
	if (r == 0 && !ticket->is_orphan) {
		have(ticket, reply->offset, reply->version);
		return;
	}
	if (r == 0)
		hold_give(job, unit);
	ticket_complete(ticket, TIERD_DONE, r, "opening the pages of a leased unit failed");
}

/* A step has failed since the request was sent, so that another version is awaited now. */
static void gather_again(struct tierd_ticket *ticket)
{
	Tierd__Wire__Gather gather;
	uint64_t offset, version;
	int r;

	if (ticket->is_orphan) {
		ticket_complete(ticket, TIERD_DONE, -ECANCELED, NULL);
		return;
	}
	r = hold_take(ticket->job, hold_newest(ticket->job), ticket->gather.unit, &offset, &version);
	if (r == 1) {
		have(ticket, offset, version);
	} else if (r < 0) {
		ticket_complete(ticket, TIERD_DONE, r, "opening the pages of a leased unit failed");
	} else {
		encode(ticket, &gather);
		ticket_send_again(ticket, WIRE_REQUEST(GATHER, gather, &gather));
	}
}

static void gather_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	if (answer->status == -EAGAIN)
		gather_again(ticket);
	else if (!ticket_is_refused(ticket, answer))
		gather_granted(ticket, answer->reply->gather);
}

static void gather_abandon(struct tierd_ticket *ticket)
{
	Tierd__Wire__GatherCancel cancel = TIERD__WIRE__GATHER_CANCEL__INIT;

	if (!ticket->job)
		return;
	if (ticket->gather.is_leased) {
		ticket->gather.is_leased = false;
		hold_give(ticket->job, ticket->gather.unit);
	} else if (!queue_is_empty(&ticket->pending)) {
		cancel.job = ticket->job->number;
		cancel.request = ticket->request;
		connection_post(ticket->node, connection_number(ticket->node),
				WIRE_REQUEST(GATHER_CANCEL, gather_cancel, &cancel));
	}
}

/* The daemon may have counted a lease for it. */
static void gather_lose(struct tierd_ticket *ticket)
{
	ticket->job->units[ticket->gather.unit]->unheard++;
}

static const struct ticket_kind gather_kind = {
	.name = "tierd_gather",
	.body = TIERD__WIRE__REPLY__BODY_GATHER,
	.answer = gather_answer,
	.abandon = gather_abandon,
	.lose = gather_lose,
};

static int gather_send(struct tierd_job *job, uint32_t unit, enum gather_call call,
		       struct tierd_ticket **ret_ticket)
{
	Tierd__Wire__Gather gather;
	struct tierd_ticket *ticket = NULL;
	int r = ticket_new(job->node, job, &gather_kind, &ticket);

	if (r < 0)
		return r;
	ticket->gather.unit = unit;
	ticket->gather.is_blocking = call != GATHER_BEGIN;
	ticket->gather.is_of_many = call == GATHER_MANY;
	encode(ticket, &gather);
	r = ticket_send(ticket, WIRE_REQUEST(GATHER, gather, &gather));
	if (r == 0)
		*ret_ticket = ticket;
	return r;
}

/* Tells the daemon that a thread waits, so that it can detect a deadlock. */
static void announce_wait(struct tierd_ticket *ticket)
{
	Tierd__Wire__GatherAwait await = TIERD__WIRE__GATHER_AWAIT__INIT;

	if (!ticket->job || ticket->gather.is_blocking || queue_is_empty(&ticket->pending))
		return;
	ticket->gather.is_blocking = true;
	await.job = ticket->job->number;
	await.request = ticket->request;
	connection_post(ticket->node, connection_number(ticket->node),
			WIRE_REQUEST(GATHER_AWAIT, gather_await, &await));
}

int gather_finish(struct tierd_ticket *ticket, uint64_t deadline, struct tierd_view *ret_parameters)
{
	int r = ticket_await(ticket, TIERD_DONE, deadline);

	if (r == 0 && !ticket->job)
		r = message_fail(-ECANCELED, "the job of this gather was left");
	if (r == 0) {
		ticket->gather.is_leased = false;
		hold_show(ticket->job, ticket->gather.attachment, ticket->gather.unit, ticket->gather.offset,
			  ticket->gather.version, ret_parameters);
	}
	return r;
}

static int gather_locked(struct tierd_job *job, uint32_t unit, struct tierd_view *ret_parameters)
{
	struct tierd_ticket *ticket = NULL;
	uint64_t start = clock_now_ns();
	int r = job_check_unit(job, unit);

	if (r == 0)
		r = gather_send(job, unit, GATHER_ONE, &ticket);
	if (r < 0)
		return r;
	r = gather_finish(ticket, connection_deadline(job->node, -1), ret_parameters);
	ticket_abandon(ticket);
	job->gather_misses++;
	job->gather_wait_ns += clock_now_ns() - start;
	return r;
}

static int gather_slowly(struct tierd_job *job, uint32_t unit, struct tierd_view *ret_parameters)
{
	int r = CHECK_GIVEN_OF("tierd_gather", job, ret_parameters);

	return r < 0 ? r : JOB_CALL(job, JOB_READY, gather_locked(job, unit, ret_parameters));
}

/* ---- Not answered ---- */

void gathers_leave(struct tierd_job *job)
{
	QUEUE_FOREACH (link, &job->node->tickets) {
		struct tierd_ticket *ticket = queue_entry(link, struct tierd_ticket, all);

		if (ticket->job != job || ticket->kind != &gather_kind || !ticket->gather.is_leased)
			continue;
		ticket->gather.is_leased = false;
		hold_give(job, ticket->gather.unit);
	}
}

bool gathers_forget(struct tierd_job *job, uint32_t unit)
{
	uint64_t held = attachment_leases(job->attachment, unit);

	if (held > job->units[unit]->unheard)
		return false;
	job->units[unit]->unheard = 0;
	for (; held > 0; held--)
		hold_give(job, unit);
	return true;
}

/* ---- Given up ---- */

static bool is_settled(const void *argument)
{
	return !ticket_is_given_up(argument, &gather_kind);
}

static int wait_for_given_up(struct tierd_job *job)
{
	int r = connection_wait(job->node, is_settled, job, connection_deadline(job->node, -1));

	if (r == -ETIMEDOUT)
		return message_fail(r, "tierd does not answer to a gather that was given up");
	return r;
}

int gathers_settle(struct tierd_job *job)
{
	int r;

	if (!ticket_is_given_up(job, &gather_kind))
		return 0;
	r = wait_for_given_up(job);
	return r < 0 ? r : job_check(job, JOB_READY);
}

static const struct tierd_ticket *gather_under_way(const struct tierd_job *job)
{
	QUEUE_FOREACH (link, &job->node->tickets) {
		const struct tierd_ticket *ticket = queue_entry(link, struct tierd_ticket, all);

		if (ticket->job == job && ticket->kind == &gather_kind && !ticket->is_orphan &&
		    (ticket->gather.is_leased || !queue_is_empty(&ticket->pending)))
			return ticket;
	}
	return NULL;
}

int gathers_are_over(struct tierd_job *job)
{
	const struct tierd_ticket *ticket = gather_under_way(job);

	if (ticket)
		return message_fail(
			-EBUSY,
			"a gather of unit \"%s\" was begun; end it or free its ticket, which has the lease",
			job_unit_name(job, ticket->gather.unit));
	/* Without a daemon no lease comes any more. */
	if (ticket_is_given_up(job, &gather_kind) && wait_for_given_up(job) == -ETIMEDOUT)
		return -ETIMEDOUT;
	return 0;
}

/* ---- Tickets ---- */

int gather_begin_locked(struct tierd_job *job, uint32_t unit, enum gather_call call,
			struct tierd_ticket **ret_ticket)
{
	struct tierd_ticket *ticket = NULL;
	uint64_t offset, version;
	int r = job_check_unit(job, unit);

	if (r < 0)
		return r;
	r = hold_take(job, hold_newest(job), unit, &offset, &version);
	if (r < 0)
		return message_fail(r, "opening the pages of unit \"%s\": %s", job_unit_name(job, unit),
				    strerror(-r));
	if (r == 0) {
		job->gather_misses++;
		return gather_send(job, unit, call, ret_ticket);
	}
	r = ticket_new(job->node, job, &gather_kind, &ticket);
	if (r < 0) {
		hold_give(job, unit);
		return r;
	}
	ticket->gather.unit = unit;
	ticket->gather.is_of_many = call == GATHER_MANY;
	have(ticket, offset, version);
	*ret_ticket = ticket;
	return 0;
}

int tierd_gather_begin(struct tierd_job *job, uint32_t unit, struct tierd_ticket **ret_ticket)
{
	int r = CHECK_GIVEN(job, ret_ticket);

	return r < 0 ? r : JOB_CALL(job, JOB_READY, gather_begin_locked(job, unit, GATHER_BEGIN, ret_ticket));
}

int tierd_gather_end(struct tierd_ticket *ticket, int timeout_ms, struct tierd_view *ret_parameters)
{
	struct tierd_node *node;
	struct tierd_job *job;
	uint64_t start = clock_now_ns();
	bool can_repeat = false;
	uint32_t unit = 0;
	int r = CHECK_GIVEN(ticket, ret_parameters);

	if (r < 0)
		return r;
	node = ticket->node;
	job = ticket->job;
	if (ticket->kind != &gather_kind)
		return message_fail(-EINVAL, "the ticket is of %s, not of a gather", ticket->kind->name);
	if (!node) {
		ticket_abandon(ticket);
		return message_fail(-ENOTCONN, "the node of this gather was disconnected");
	}
	r = connection_enter(node);
	if (r < 0)
		return r;
	if (timeout_ms != 0)
		announce_wait(ticket);
	r = gather_finish(ticket, connection_deadline(node, timeout_ms), ret_parameters);
	if (ticket->job == job && job && !node->error)
		job->gather_wait_ns += clock_now_ns() - start;
	if (r != -ETIMEDOUT) {
		unit = ticket->gather.unit;
		can_repeat = r == -ECONNRESET && ticket->job && node->reconnect_ms > 0 && timeout_ms != 0;
		ticket_abandon(ticket);
	}
	connection_exit(node);
	/* The connection over which it was asked for was lost. */
	return can_repeat ? tierd_gather(job, unit, ret_parameters) : r;
}

/* ---- Hints ---- */

static int prefetch(struct tierd_job *job, const uint32_t *units, size_t count)
{
	Tierd__Wire__Prefetch prefetch = TIERD__WIRE__PREFETCH__INIT;
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++)
		r = job_check_unit(job, units[i]);
	if (r < 0 || count == 0)
		return r;
	prefetch.job = job->number;
	prefetch.n_units = count < WIRE_MAX_PREFETCH ? count : WIRE_MAX_PREFETCH;
	prefetch.units = (uint32_t *)units;
	/* It is a hint: there is no ticket for the reply. */
	return connection_send(job->node, connection_number(job->node),
			       WIRE_REQUEST(PREFETCH, prefetch, &prefetch));
}

int tierd_prefetch(struct tierd_job *job, const uint32_t *units, size_t count)
{
	int r = CHECK_GIVEN(job);

	if (r == 0 && count > 0)
		r = CHECK_GIVEN(units);
	return r < 0 ? r : JOB_CALL(job, JOB_READY, prefetch(job, units, count));
}

static int name_phase(struct tierd_job *job, const char *name)
{
	Tierd__Wire__Phase phase = TIERD__WIRE__PHASE__INIT;
	int r;

	phase.job = job->number;
	phase.name = (char *)name;
	r = ticket_call(job, WIRE_REQUEST(PHASE, phase, &phase));
	if (r == 0)
		strcpy(job->phase, name);
	return r;
}

int tierd_phase(struct tierd_job *job, const char *name)
{
	int r = CHECK_GIVEN(job, name);

	if (r < 0)
		return r;
	if (name_check(name, TIERD_MAX_NAME) < 0)
		return message_fail(-EINVAL, "a phase has a name of 1 to %d bytes of UTF-8 that is printable",
				    TIERD_MAX_NAME);
	return JOB_CALL(job, JOB_READY, name_phase(job, name));
}
