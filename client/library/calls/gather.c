#include <errno.h>
#include <string.h>

#include "client/library/calls/calls.h"
#include "client/library/pages/hold.h"
#include "client/library/pages/left.h"
#include "common/clock.h"
#include "proto/name.h"
#include "proto/vocabulary.h"

/* ---- The hot path ---- */

/* 1, or 0: the daemon has to be asked. With TIERD_DEBUG=leases a negative errno, as of hold_take(). */
static inline int gather_at_once(struct tierd_job *job, uint32_t unit, struct tierd_view *ret_parameters)
{
	const struct attachment *attachment;
	uint64_t offset, version;
	int r;

	if (UNLIKELY(!hold_is_possible(job, unit, &attachment)))
		return 0;
	r = hold_take(job, attachment, PLACE_HOST, unit, &offset, &version);
	if (UNLIKELY(r != 1))
		return r;
	hold_note(job, attachment, unit);
	hold_show(job, attachment, PLACE_HOST, unit, offset, version, ret_parameters);
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

/* ---- The daemon is asked ---- */

static int gather_locked(struct tierd_job *job, uint32_t unit, struct tierd_view *ret_parameters)
{
	struct tierd_ticket *ticket = NULL;
	uint64_t start = clock_now_ns();
	int r = job_check_unit(job, unit);

	if (r == 0)
		r = gather_send(job, PLACE_HOST, unit, GATHER_ONE, &ticket);
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

/* ---- Tickets ---- */

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
	if (ticket->kind != &gather_kinds[PLACE_HOST])
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
