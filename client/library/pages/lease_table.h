/* A lease table is where leases are taken on units in one kind of memory: by unit, the words of the daemon
 * and the counters of this rank. */
#ifndef TIERD_CLIENT_LEASE_TABLE_H
#define TIERD_CLIENT_LEASE_TABLE_H

#include "proto/pages.h"

struct debug;

/* The kinds of memory. A rank's leases on a unit are of one of them each. */
enum place { PLACE_HOST, PLACE_GPU, PLACES };

struct lease_table {
	struct directory_entry *entries;
	_Atomic uint32_t *counters;
	_Atomic uint32_t *is_release_wanted;
	char *memory; /* where offsets count from */
	uint64_t bytes;
	struct debug *debug; /* NULL: not TIERD_DEBUG=leases */
};

#endif
