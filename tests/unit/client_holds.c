#include "tests/unit/client_holds.h"

#include <assert.h>
#include <stdlib.h>

#include "client/library/pages/hold.h"

#define UNITS 64

static struct hot_unit hot[UNITS];
static struct attachment attachment;
static struct tierd_job job;

void client_attach(struct directory_header *directory, struct lease_header *leases, uint32_t buffer_count)
{
	assert(directory->unit_count <= UNITS);
	for (unsigned i = 0; i < UNITS; i++)
		hot[i].awaited_mask = UINT64_MAX;
	attachment = (struct attachment){ .directory = directory,
					  .leases = leases,
					  .host = { .entries = directory_entries(directory),
						    .counters = lease_counters(leases, buffer_count),
						    .is_release_wanted = &leases->is_release_wanted } };
	job = (struct tierd_job){ .attachment = &attachment, .hot = hot, .doorbell_fd = -1 };
}

bool client_take(uint32_t unit, uint64_t awaited, uint64_t *ret_offset, uint64_t *ret_version)
{
	job.awaited = awaited;
	return hold_take(&job, &attachment, PLACE_HOST, unit, ret_offset, ret_version) == 1;
}

void client_give(uint32_t unit)
{
	if (!hold_give(&job, PLACE_HOST, unit))
		abort();
}

/* What the library has for TIERD_DEBUG=leases: the attachment is of no such run. */
int debug_take(struct debug *debug, uint32_t unit, uint64_t offset)
{
	abort();
}

bool debug_give(struct debug *debug, uint32_t unit)
{
	abort();
}
