/* Queries that need no request: the leases of this rank, and where its memory is mapped. */
#include <errno.h>

#include "client/library/calls/calls.h"
#include "client/library/connection/structure.h"
#include "client/library/pages/hold.h"

/* ---- Leases ---- */

static uint64_t unit_leases(const struct tierd_job *job, uint32_t unit)
{
	uint64_t leases = 0;

	for (int place = 0; place < PLACES; place++)
		leases += attachment_leases(job->attachment, (enum place)place, unit);
	return leases;
}

int tierd_leases(struct tierd_job *job, uint32_t unit, uint64_t *ret_leases)
{
	int r = CHECK_GIVEN(job, ret_leases);

	if (r == 0)
		r = job_enter(job, JOB_OPEN);
	if (r < 0)
		return r;
	if (unit != TIERD_ALL)
		r = job_check_unit(job, unit);
	if (r == 0)
		*ret_leases = unit == TIERD_ALL ? attachment_all_leases(job->attachment, job->unit_count)
						: unit_leases(job, unit);
	connection_exit(job->node);
	return r;
}

/* ---- Memory ---- */

int tierd_mappings(struct tierd_job *job, struct tierd_mappings *ret_mappings)
{
	struct tierd_mappings own = TIERD_MAPPINGS_INIT;
	int r = CHECK_GIVEN(job, ret_mappings);

	if (r == 0)
		r = job_enter(job, JOB_READY);
	if (r < 0)
		return r;
	own.parameters = job->attachment->arena_mapping.address;
	own.parameter_bytes = job->attachment->arena_mapping.bytes;
	own.gradients = job->attachment->gradient_mapping.address;
	own.gradient_bytes = job->attachment->gradient_mapping.bytes;
	own.page_bytes = job->attachment->arena_page_bytes;
	own.number = job->attachment->number;
	connection_exit(job->node);
	return STRUCTURE_GIVE(ret_mappings, &own, "the mappings have", TIERD_MAPPINGS_INIT);
}
