#include "daemon/observe/leases.h"

#include <errno.h>
#include <stdlib.h>

#include "common/clock.h"
#include "daemon/gpu/gpu.h"
#include "daemon/model/model.h"

/* As many as fit in a frame and unpack to less than its bound, units with names of full length, and as take
 * the loop for a tenth of a millisecond: so do the counters that are looked at. */
#define UNITS_PER_REPLY 256
#define LEASES_PER_REPLY 1024
#define LEASES_PER_UNIT 8192
#define LOOKS_PER_REPLY (UINT32_C(1) << 12)

struct report {
	Tierd__Wire__LeasesReply body;
	Tierd__Wire__LeasedUnit units[UNITS_PER_REPLY], *unit_pointers[UNITS_PER_REPLY];
	Tierd__Wire__Lease leases[LEASES_PER_UNIT], *lease_pointers[LEASES_PER_UNIT];
	size_t lease_count;
};

static Tierd__Wire__Lease *add_lease(struct report *report, Tierd__Wire__LeasedUnit *unit,
				     const struct member *member, uint32_t count)
{
	Tierd__Wire__Lease *lease = &report->leases[report->lease_count];

	tierd__wire__lease__init(lease);
	lease->rank = member->rank;
	lease->pid = (uint32_t)member->pid;
	lease->count = count;
	lease->joined_ms = (clock_now_ns() - member->joined_ns) / 1000000;
	lease->has_left = member->has_left;
	report->lease_pointers[report->lease_count++] = lease;
	unit->n_leases++;
	return lease;
}

/* In host memory, and on its GPU. */
#define LEASES_PER_MEMBER 2

static void add_member(struct report *report, Tierd__Wire__LeasedUnit *unit, const struct member *member)
{
	uint32_t count, gpu;

	if (!member || report->lease_count + LEASES_PER_MEMBER > LEASES_PER_UNIT)
		return;
	if (member_has_lease(member, unit->unit)) {
		count = atomic_load(&lease_counters(member->leases, member->buffer_count)[unit->unit]);
		add_lease(report, unit, member, count);
	}
	count = gpu_leases(member, unit->unit, &gpu);
	if (count > 0) {
		Tierd__Wire__Lease *lease = add_lease(report, unit, member, count);

		lease->has_gpu = true;
		lease->gpu = gpu;
	}
}

static void add_unit(struct report *report, const struct job *job, uint32_t index)
{
	Tierd__Wire__LeasedUnit *unit = &report->units[report->body.n_units];

	tierd__wire__leased_unit__init(unit);
	unit->unit = index;
	unit->name = job->catalog.units[index].name;
	unit->leases = &report->lease_pointers[report->lease_count];
	for (uint32_t rank = 0; rank < job->options.world_size; rank++)
		add_member(report, unit, job->members.ranks[rank]);
	QUEUE_FOREACH (link, &job->members.lingering)
		add_member(report, unit, queue_entry(link, struct member, link));
	if (unit->n_leases > 0)
		report->unit_pointers[report->body.n_units++] = unit;
}

static uint32_t count_holders(const struct job *job)
{
	uint32_t count = job->options.world_size;

	QUEUE_FOREACH (link, &job->members.lingering)
		count++;
	return count;
}

/* A unit with all of its holders, or not at all: but the first in any case. */
static void fill(struct report *report, const struct job *job, uint32_t first)
{
	uint32_t holders = count_holders(job), unit = first;
	uint32_t most = holders < LOOKS_PER_REPLY ? LOOKS_PER_REPLY / holders : 1;

	tierd__wire__leases_reply__init(&report->body);
	report->body.units = report->unit_pointers;
	report->body.total = job->catalog.unit_count;
	for (; unit < job->catalog.unit_count && unit - first < most; unit++) {
		if (report->body.n_units == UNITS_PER_REPLY ||
		    (unit > first && report->lease_count + LEASES_PER_MEMBER * holders > LEASES_PER_REPLY))
			break;
		add_unit(report, job, unit);
	}
	report->body.next = unit;
}

void leases_report(struct pending *pending, const Tierd__Wire__LeasesRead *request)
{
	const struct job *job = access_find(pending, request->name, request->has_owner, request->owner);
	_cleanup_free_ struct report *report = NULL;

	if (!job)
		return;
	report = calloc(1, sizeof(*report));
	if (!report) {
		pending_error(pending, -ENOMEM, "out of memory");
		return;
	}
	fill(report, job, request->first);
	pending_reply(pending, WIRE_REPLY(LEASES, leases, &report->body));
}
