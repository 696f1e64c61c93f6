/* A gather that missed: the client waits until its unit is resident at its version, and gets the lease with
 * the answer. */
#include <errno.h>
#include <stdio.h>

#include "daemon/model/model.h"
#include "daemon/residency/damage.h"
#include "daemon/residency/own.h"
#include "daemon/telemetry/telemetry.h"

/* The lease is counted here, before anything can evict the pack again. */
static void grant(struct pending *pending)
{
	struct member *member = pending->member;
	struct job *job = member->job;
	const struct residence *residence =
		&job->residency->residences[job->catalog.units[pending->unit].pack];
	Tierd__Wire__GatherReply gather = TIERD__WIRE__GATHER_REPLY__INIT;

	atomic_fetch_add_explicit(&lease_counters(member->leases, member->buffer_count)[pending->unit], 1,
				  memory_order_seq_cst);
	gather.offset = job->residency->slots.offsets[residence->slot];
	gather.version = residence->version;
	pending_reply(pending, WIRE_REPLY(GATHER, gather, &gather));
}

static void fail_read(struct pending *pending, int status)
{
	const struct job *job = pending->member->job;
	const struct unit *unit = &job->catalog.units[pending->unit];
	const struct store_transfer *fault = residency_fault(job, unit->pack);
	char what[WIRE_MAX_NAME + 16], text[DAMAGE_TEXT];

	snprintf(what, sizeof(what), "unit \"%s\"", unit->name);
	pending_error(pending, -EIO, "job %s: %s", job->name, damage_explain(job, what, fault, status, text));
}

static void on_resident(struct waiter *waiter, int status)
{
	struct pending *pending = container_of(waiter, struct pending, waiter);
	struct job *job = pending->member->job;

	if (status == 0)
		grant(pending);
	else if (status == -EDEADLK)
		pending_error(
			pending, -EDEADLK,
			"unit \"%s\" can never be gathered beside what is leased (%s), by ranks that wait "
			"themselves; release a unit first, or raise host_budget",
			job->catalog.units[pending->unit].name, job->residency->holders);
	else if (status == -EAGAIN)
		pending_error(pending, -EAGAIN, "the awaited step failed");
	else
		fail_read(pending, status);
}

void gather_fail_refused(struct member *member)
{
	QUEUE_FOREACH (link, &member->pendings) {
		struct pending *pending = queue_entry(link, struct pending, member_link);

		if (pending->waiter.is_gather && pending->waiter.version > member_last_version(member))
			pending_error(pending, -EAGAIN, "the awaited step was refused");
	}
}

void gather_expect(struct member *member, uint64_t version)
{
	QUEUE_FOREACH (link, &member->pendings) {
		struct pending *pending = queue_entry(link, struct pending, member_link);

		if (pending->waiter.is_gather &&
		    unit_is_trainable(&member->job->catalog.units[pending->unit]) &&
		    pending->waiter.version < version)
			pending->waiter.version = version;
	}
}

/* True, and it is answered, if the gather waits for a step that its own rank has yet to finish. */
static bool gather_refuse_owed(struct pending *pending)
{
	const struct member *member = pending->member;

	if (!member_owes_step(member) || pending->waiter.version <= member->job->decided)
		return false;
	pending_error(
		pending, -EBUSY,
		"unit \"%s\" has no values of the step that rank %u has closed until the rank finishes it; "
		"write what is to be written, and call %s first",
		member->job->catalog.units[pending->unit].name, member->rank, member_owed_call(member));
	return true;
}

bool gather_admit(struct pending *pending, uint32_t epoch, uint32_t unit, uint64_t version)
{
	struct member *member = pending->member;
	struct job *job = member->job;

	if (!job_check_live(pending, epoch) || !job_check_unit(pending, unit))
		return false;
	pending->unit = unit;
	if (unit_is_trainable(&job->catalog.units[unit]))
		pending->waiter.version = version;
	if (pending->waiter.version > job->decided + 2) {
		pending_error(pending, -EINVAL, "version %llu is ahead of every step",
			      (unsigned long long)version);
		return false;
	}
	figures_of(job)->misses++;
	/* Sent before the refusal of its step was read. */
	if (pending->waiter.version > member_last_version(member)) {
		pending_error(pending, -EAGAIN, "the awaited step was refused");
		return false;
	}
	return !gather_refuse_owed(pending);
}

void gather_start(struct pending *pending, const Tierd__Wire__Gather *gather)
{
	struct member *member = pending->member;
	struct job *job = member->job;

	pending->waiter.is_gather = true;
	pending->waiter.blocked = gather->is_blocking ? member : NULL;
	pending->waiter.done = on_resident;
	if (!gather_admit(pending, gather->epoch, gather->unit, gather->version))
		return;
	if (residency_want(job, job->catalog.units[gather->unit].pack, &pending->waiter, TIER_DEMAND))
		grant(pending);
	prefetch_run(job);
	residency_check_deadlock(job);
}

static struct pending *find_gather(const struct member *member, uint32_t number)
{
	QUEUE_FOREACH (link, &member->pendings) {
		struct pending *pending = queue_entry(link, struct pending, member_link);

		if (pending->number == number && pending->waiter.is_gather)
			return pending;
	}
	return NULL;
}

void gather_cancel(struct pending *pending, const Tierd__Wire__GatherCancel *cancel)
{
	struct pending *gather = find_gather(pending->member, cancel->request);

	if (gather)
		pending_error(gather, -ECANCELED, "the gather was cancelled");
	pending_reply(pending, NULL);
}

void gather_await(struct pending *pending, const Tierd__Wire__GatherAwait *await)
{
	struct member *member = pending->member;
	struct job *job = member->job;
	struct pending *gather = find_gather(member, await->request);

	if (gather && !gather_refuse_owed(gather)) {
		gather->waiter.blocked = member;
		residency_note_stall(job, job->catalog.units[gather->unit].pack, &gather->waiter);
	}
	pending_reply(pending, NULL);
	if (job_is_live(job))
		residency_check_deadlock(job);
}
