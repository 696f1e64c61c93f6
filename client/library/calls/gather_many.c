/* Gathers of many units in one call: resident ones need no system call, and the others are requested
 * together. */
#include <errno.h>

#include "client/library/calls/calls.h"
#include "client/library/pages/hold.h"
#include "common/clock.h"

/* Requests that wait for replies: enough to keep a device busy, and fewer than the limit of a connection. */
#define MISSES_AT_ONCE 8

/* Leaves base NULL where no lease was taken. */
static size_t take_resident(struct tierd_job *job, const struct attachment *attachment, const uint32_t *units,
			    size_t count, struct tierd_view *ret_parameters)
{
	uint64_t offset, version;
	size_t taken = 0;

	for (size_t i = 0; i < count; i++) {
		ret_parameters[i].base = NULL;
		if (UNLIKELY(!hold_is_known(job, units[i])) ||
		    UNLIKELY(hold_take(job, attachment, PLACE_HOST, units[i], &offset, &version) != 1))
			continue;
		hold_show(job, attachment, PLACE_HOST, units[i], offset, version, &ret_parameters[i]);
		taken++;
	}
	return taken;
}

static void count_gathers(struct tierd_job *job, const uint32_t *units, size_t count)
{
	uint64_t elements = 0;

	for (size_t i = 0; i < count; i++)
		elements += job->hot[units[i]].elements;
	atomic_fetch_add_explicit(&job->gathers_of_many, count, memory_order_relaxed);
	atomic_fetch_add_explicit(&job->elements_of_many, elements, memory_order_relaxed);
}

static void note_gathers(const struct tierd_job *job, const uint32_t *units, size_t count)
{
	if (trace_append(hold_newest(job)->leases, units, count))
		hold_ring(job);
}

/* ---- By message ---- */

/* Units without a lease: from sent on they have to be requested, and before that they wait for replies,
 * oldest first. */
struct misses {
	const uint32_t *units;
	struct tierd_view *views;
	size_t count;
	size_t sent, done;
	size_t noted; /* those before it are in the trace */
	struct tierd_ticket *tickets[MISSES_AT_ONCE];
	size_t first_ticket, ticket_count;
};

static size_t find_miss(const struct misses *misses, size_t from)
{
	while (from < misses->count && misses->views[from].base)
		from++;
	return from;
}

static struct tierd_ticket *take_ticket(struct misses *misses)
{
	struct tierd_ticket *ticket = misses->tickets[misses->first_ticket % MISSES_AT_ONCE];

	misses->first_ticket++;
	misses->ticket_count--;
	return ticket;
}

static int send_misses(struct tierd_job *job, struct misses *misses)
{
	int r = 0;

	while (r == 0 && misses->ticket_count < MISSES_AT_ONCE) {
		struct tierd_ticket *ticket = NULL;

		misses->sent = find_miss(misses, misses->sent);
		if (misses->sent == misses->count)
			break;
		r = gather_begin_locked(job, misses->units[misses->sent], GATHER_MANY, &ticket);
		if (r < 0)
			break;
		misses->tickets[(misses->first_ticket + misses->ticket_count++) % MISSES_AT_ONCE] = ticket;
		misses->sent++;
	}
	return r;
}

/* Traces units as they arrive: at each request the daemon reads the trace and loads what usually comes next.
 * All units at once might be more than the trace holds. */
static void note_done(const struct tierd_job *job, struct misses *misses)
{
	if (misses->done < misses->noted)
		return;
	note_gathers(job, misses->units + misses->noted, misses->done + 1 - misses->noted);
	misses->noted = misses->done + 1;
}

static int finish_misses(struct tierd_job *job, struct misses *misses)
{
	uint64_t deadline = connection_deadline(job->node, -1);
	int r = 0;

	while (r == 0) {
		r = send_misses(job, misses);
		if (r < 0 || misses->ticket_count == 0)
			break;
		struct tierd_ticket *ticket = take_ticket(misses);

		misses->done = find_miss(misses, misses->done);
		r = gather_finish(ticket, deadline, &misses->views[misses->done]);
		ticket_abandon(ticket);
		if (r == 0)
			note_done(job, misses);
	}
	while (misses->ticket_count > 0)
		ticket_abandon(take_ticket(misses));
	return r;
}

static int gather_misses_locked(struct tierd_job *job, struct misses *misses)
{
	uint64_t start = clock_now_ns();
	int r = 0;

	misses->sent = misses->done = 0;
	for (size_t i = 0; i < misses->count && r == 0; i++)
		r = job_check_unit(job, misses->units[i]);
	if (r == 0)
		r = finish_misses(job, misses);
	job->gather_wait_ns += clock_now_ns() - start;
	return r;
}

static int gather_misses(struct tierd_job *job, const uint32_t *units, size_t count,
			 struct tierd_view *ret_parameters)
{
	struct misses misses = { .units = units, .views = ret_parameters, .count = count };
	int r = JOB_CALL(job, JOB_READY, gather_misses_locked(job, &misses));

	if (r == 0)
		note_gathers(job, units + misses.noted, count - misses.noted);
	for (size_t i = 0; i < count && r < 0; i++) {
		if (ret_parameters[i].base)
			hold_give(job, PLACE_HOST, units[i]);
		ret_parameters[i].base = NULL;
	}
	return r;
}

int tierd_gather_many(struct tierd_job *job, const uint32_t *units, size_t count,
		      struct tierd_view *ret_parameters)
{
	const struct attachment *attachment;
	size_t taken = 0;
	int r = CHECK_GIVEN(job);

	if (r == 0 && count > 0)
		r = CHECK_GIVEN(units, ret_parameters);
	if (r < 0 || count == 0)
		return r;
	if (LIKELY(hold_is_possible(job, units[0], &attachment)))
		taken = take_resident(job, attachment, units, count, ret_parameters);
	else
		for (size_t i = 0; i < count; i++)
			ret_parameters[i].base = NULL;
	if (UNLIKELY(taken < count))
		r = gather_misses(job, units, count, ret_parameters);
	else
		note_gathers(job, units, count);
	if (r == 0)
		count_gathers(job, units, count);
	return r;
}
