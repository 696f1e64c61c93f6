/* Gathers that the daemon is asked for: their tickets, from the request to the lease. */
#include <errno.h>
#include <string.h>

#include "client/library/calls/calls.h"
#include "client/library/pages/hold.h"

/* ---- From request to reply ---- */

static int ask_for_host(struct tierd_ticket *ticket,
			int (*send)(struct tierd_ticket *ticket, const Tierd__Wire__Request *request))
{
	const struct tierd_job *job = ticket->job;
	Tierd__Wire__Gather gather = TIERD__WIRE__GATHER__INIT;

	gather.job = job->number;
	gather.epoch = job->epoch;
	gather.unit = ticket->gather.unit;
	gather.version = job_awaited(job, ticket->gather.unit);
	gather.is_blocking = ticket->gather.is_blocking;
	return send(ticket, WIRE_REQUEST(GATHER, gather, &gather));
}

static int ask_for_gpu(struct tierd_ticket *ticket,
		       int (*send)(struct tierd_ticket *ticket, const Tierd__Wire__Request *request))
{
	const struct tierd_job *job = ticket->job;
	Tierd__Wire__GpuGather gather = TIERD__WIRE__GPU_GATHER__INIT;

	gather.job = job->number;
	gather.epoch = job->epoch;
	gather.unit = ticket->gather.unit;
	gather.version = job_awaited(job, ticket->gather.unit);
	gather.is_blocking = ticket->gather.is_blocking;
	return send(ticket, WIRE_REQUEST(GPU_GATHER, gpu_gather, &gather));
}

static int ask(struct tierd_ticket *ticket,
	       int (*send)(struct tierd_ticket *ticket, const Tierd__Wire__Request *request))
{
	return ticket->gather.place == PLACE_HOST ? ask_for_host(ticket, send) : ask_for_gpu(ticket, send);
}

static void have(struct tierd_ticket *ticket, uint64_t offset, uint64_t version)
{
	ticket->gather.offset = offset;
	ticket->gather.version = version;
	ticket->gather.is_leased = true;
	ticket->gather.attachment = hold_newest(ticket->job);
	if (!ticket->gather.is_of_many)
		hold_note(ticket->job, ticket->gather.attachment, ticket->gather.unit);
	ticket_complete(ticket, TIERD_DONE, 0, NULL);
}

/* The daemon has counted the lease in this rank's lease page. */
static void granted(struct tierd_ticket *ticket, uint64_t offset, uint64_t version)
{
	struct tierd_job *job = ticket->job;
	const struct attachment *attachment = hold_newest(job);
	enum place place = ticket->gather.place;
	const struct lease_table *table = attachment_table(attachment, place);
	uint32_t unit = ticket->gather.unit;
	int r = 0;

	if (offset > table->bytes || job->units[unit]->end > table->bytes - offset) {
		ticket_violation(ticket, "a place outside the memory");
		return;
	}
	if (table->debug)
		r = debug_take(table->debug, unit, offset);
	if (r < 0)
		hold_take_back(job, attachment, place, unit);
	if (r == 0 && !ticket->is_orphan) {
		have(ticket, offset, version);
		return;
	}
	if (r == 0)
		hold_give(job, place, unit);
	ticket_complete(ticket, TIERD_DONE, r, "opening the pages of a leased unit failed");
}

/* A step has failed since the request was sent, so that another version is awaited now. */
static void gather_again(struct tierd_ticket *ticket)
{
	uint64_t offset, version;
	int r;

	if (ticket->is_orphan) {
		ticket_complete(ticket, TIERD_DONE, -ECANCELED, NULL);
		return;
	}
	r = hold_take(ticket->job, hold_newest(ticket->job), ticket->gather.place, ticket->gather.unit,
		      &offset, &version);
	if (r == 1) {
		ticket->gather.has_arrived = true;
		have(ticket, offset, version);
	} else if (r < 0) {
		ticket_complete(ticket, TIERD_DONE, r, "opening the pages of a leased unit failed");
	} else {
		(void)ask(ticket, ticket_send_again);
	}
}

static void gather_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	if (answer->status == -EAGAIN)
		gather_again(ticket);
	else if (!ticket_is_refused(ticket, answer))
		granted(ticket, answer->reply->gather->offset, answer->reply->gather->version);
}

static void gather_on_answer(struct tierd_ticket *ticket, const struct answer *answer)
{
	const Tierd__Wire__GpuGatherReply *reply = answer->reply->gpu_gather;
	const struct gpu_tier *tier = hold_newest(ticket->job)->gpu;

	if (answer->status == -EAGAIN) {
		gather_again(ticket);
		return;
	}
	if (ticket_is_refused(ticket, answer))
		return;
	if (!tier || (!reply->has_arrived && reply->event >= gpu_tier_events(tier))) {
		ticket_violation(ticket, "an event that there is not");
		return;
	}
	ticket->gather.has_arrived = reply->has_arrived;
	ticket->gather.event = reply->event;
	granted(ticket, reply->offset, reply->version);
}

static void gather_abandon(struct tierd_ticket *ticket)
{
	Tierd__Wire__GatherCancel cancel = TIERD__WIRE__GATHER_CANCEL__INIT;

	if (!ticket->job)
		return;
	if (ticket->gather.is_leased) {
		ticket->gather.is_leased = false;
		hold_give(ticket->job, ticket->gather.place, ticket->gather.unit);
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
	ticket->job->units[ticket->gather.unit]->unheard[ticket->gather.place]++;
}

const struct ticket_kind gather_kinds[PLACES] = {
	[PLACE_HOST] = {
		.name = "tierd_gather",
		.body = TIERD__WIRE__REPLY__BODY_GATHER,
		.answer = gather_answer,
		.abandon = gather_abandon,
		.lose = gather_lose,
	},
	[PLACE_GPU] = {
		.name = "tierd_gather_on",
		.body = TIERD__WIRE__REPLY__BODY_GPU_GATHER,
		.answer = gather_on_answer,
		.abandon = gather_abandon,
		.lose = gather_lose,
	},
};

int gather_send(struct tierd_job *job, enum place place, uint32_t unit, enum gather_call call,
		struct tierd_ticket **ret_ticket)
{
	struct tierd_ticket *ticket = NULL;
	int r = ticket_new(job->node, job, &gather_kinds[place], &ticket);

	if (r < 0)
		return r;
	ticket->gather.place = place;
	ticket->gather.unit = unit;
	ticket->gather.is_blocking = call != GATHER_BEGIN;
	ticket->gather.is_of_many = call == GATHER_MANY;
	r = ask(ticket, ticket_send);
	if (r == 0)
		*ret_ticket = ticket;
	return r;
}

int gather_finish(struct tierd_ticket *ticket, uint64_t deadline, struct tierd_view *ret_parameters)
{
	int r = ticket_await(ticket, TIERD_DONE, deadline);

	if (r == 0 && !ticket->job)
		r = message_fail(-ECANCELED, "the job of this gather was left");
	if (r == 0) {
		ticket->gather.is_leased = false;
		hold_show(ticket->job, ticket->gather.attachment, ticket->gather.place, ticket->gather.unit,
			  ticket->gather.offset, ticket->gather.version, ret_parameters);
	}
	return r;
}

int gather_begin_locked(struct tierd_job *job, uint32_t unit, enum gather_call call,
			struct tierd_ticket **ret_ticket)
{
	struct tierd_ticket *ticket = NULL;
	uint64_t offset, version;
	int r = job_check_unit(job, unit);

	if (r < 0)
		return r;
	r = hold_take(job, hold_newest(job), PLACE_HOST, unit, &offset, &version);
	if (r < 0)
		return message_fail(r, "opening the pages of unit \"%s\": %s", job_unit_name(job, unit),
				    strerror(-r));
	if (r == 0) {
		job->gather_misses++;
		return gather_send(job, PLACE_HOST, unit, call, ret_ticket);
	}
	r = ticket_new(job->node, job, &gather_kinds[PLACE_HOST], &ticket);
	if (r < 0) {
		hold_give(job, PLACE_HOST, unit);
		return r;
	}
	ticket->gather.unit = unit;
	ticket->gather.is_of_many = call == GATHER_MANY;
	have(ticket, offset, version);
	*ret_ticket = ticket;
	return 0;
}

/* ---- Not answered ---- */

static bool is_gather(const struct tierd_ticket *ticket)
{
	return ticket->kind >= gather_kinds && ticket->kind < gather_kinds + PLACES;
}

void gathers_leave(struct tierd_job *job)
{
	QUEUE_FOREACH (link, &job->node->tickets) {
		struct tierd_ticket *ticket = queue_entry(link, struct tierd_ticket, all);

		if (ticket->job != job || !is_gather(ticket) || !ticket->gather.is_leased)
			continue;
		ticket->gather.is_leased = false;
		hold_give(job, ticket->gather.place, ticket->gather.unit);
	}
}

bool gathers_forget(struct tierd_job *job, enum place place, uint32_t unit)
{
	uint64_t held = attachment_leases(job->attachment, place, unit);

	if (held > job->units[unit]->unheard[place])
		return false;
	job->units[unit]->unheard[place] = 0;
	for (; held > 0; held--)
		hold_give(job, place, unit);
	return true;
}

/* ---- Given up ---- */

static bool is_settled(const void *argument)
{
	for (int place = 0; place < PLACES; place++)
		if (ticket_is_given_up(argument, &gather_kinds[place]))
			return false;
	return true;
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

	if (is_settled(job))
		return 0;
	r = wait_for_given_up(job);
	return r < 0 ? r : job_check(job, JOB_READY);
}

static const struct tierd_ticket *gather_under_way(const struct tierd_job *job)
{
	QUEUE_FOREACH (link, &job->node->tickets) {
		const struct tierd_ticket *ticket = queue_entry(link, struct tierd_ticket, all);

		if (ticket->job == job && is_gather(ticket) && !ticket->is_orphan &&
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
	if (!is_settled(job) && wait_for_given_up(job) == -ETIMEDOUT)
		return -ETIMEDOUT;
	return 0;
}
