/* The pages of a GPU tier, which daemon and clients share: proto/pages.h, but for bytes in a GPU's memory.
 *
 * A job has a tier on each GPU that one of its ranks asks for. Its directory is one as of host memory,
 * without sections: those of host memory count here, too. A client takes a lease in the same way, in a page
 * of its own for each tier.
 *
 * What a client has queued on a GPU goes on after it has released a unit, and the daemon must not overwrite
 * the unit before that has ended. So the client has events, which it has given the daemon handles of. They
 * are used in turn, and numbered from 1 on: event n is the one at (n - 1) % GPU_EVENTS. A tier that keeps all
 * units at once overwrites one only to update it: there the client records one event, the fence, when it
 * closes a step, behind all that it has queued. Otherwise it records one with each release, before it gives
 * the lease. An event that is recorded again meanwhile is a later one, and waits for more than is needed. */
#ifndef TIERD_PROTO_GPU_PAGES_H
#define TIERD_PROTO_GPU_PAGES_H

#include "proto/pages.h"

#define GPU_PAGES_MAGIC 0x67726974 /* "tirg" */
#define GPU_PAGES_VERSION 1
/* Of each client, on each GPU. */
#define GPU_EVENTS 32
#define GPU_HANDLE_BYTES 64
#define GPU_UUID_BYTES 16

struct gpu_lease_header {
	uint32_t magic, version;
	uint32_t unit_count;
	/* Somebody waits for a slot: the daemon asks for a ring of the job's doorbell at the next release. */
	_Atomic uint32_t is_release_wanted;
	_Alignas(64) _Atomic uint64_t recorded; /* the number of the last event */
	_Atomic uint64_t fence;			/* that of the last step that was closed; 0: none */
};

static inline _Atomic uint32_t *gpu_lease_counters(struct gpu_lease_header *header)
{
	return (_Atomic uint32_t *)((char *)header + 4096);
}

/* By unit: the event of its last release; 0: it has none. */
static inline _Atomic uint64_t *gpu_lease_released(struct gpu_lease_header *header, uint32_t unit_count)
{
	return (_Atomic uint64_t *)(gpu_lease_counters(header) + (unit_count + 15) / 16 * 16);
}

static inline size_t gpu_lease_bytes(uint32_t unit_count)
{
	return 4096 + sizeof(uint32_t) * ((unit_count + 15) / 16 * 16) + sizeof(uint64_t) * unit_count;
}

static inline unsigned gpu_event_at(uint64_t number)
{
	return (unsigned)((number - 1) % GPU_EVENTS);
}

#endif
