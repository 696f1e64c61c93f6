/* A store on devices without a daemon around it, of one stream, all of whose extents are written and
 * committed, so that nothing else is in a figure. */
#ifndef TIERD_TESTS_BENCH_BARE_STORE_H
#define TIERD_TESTS_BENCH_BARE_STORE_H

#include "common/workers.h"
#include "offload/store/store.h"
#include "tests/bench/disk.h"

#define BARE_DEPTH 32 /* as the daemon's queues are */

struct bare_store;

/* One write at a time of those that are in flight. */
struct bare_slot {
	struct store_transfer transfer;
	struct bare_store *bare;
	uint64_t checksums[STORE_EXTENT_BYTES / STORE_BLOCK_BYTES];
};

struct bare_store {
	struct bench_disk disk;
	struct workers *workers;
	struct store *store; /* owned; made by whoever knows its tiers */
	uint64_t bytes;	     /* of its state: whole extents */
	uint64_t step;
	/* What tiers stacked on the disk's have to do; how long poll() may wait for anything else. NULL:
	 * nothing. */
	int (*turn)(struct bare_store *bare);
	/* Fills in those of an extent. NULL: the store computes them. */
	void (*checksum)(struct bare_store *bare, uint64_t offset, uint64_t *ret_checksums);

	struct bare_slot slots[BARE_DEPTH];
	uint64_t next;
	unsigned in_flight;
	struct store_request request;
	int error;
};
#define BARE_STORE_INIT                                                                                      \
	{                                                                                                    \
		.disk = BENCH_DISK_INIT                                                                      \
	}

/* Opens everything but the store. */
int bare_store_open(struct bare_store *bare);
void bare_store_close(struct bare_store *bare);
/* A durable layout of so many bytes. */
int bare_store_layout(const struct bare_store *bare, struct store_layout **ret_layout);

/* Waits for whatever is in flight, and says how it has ended. */
int bare_store_wait(struct bare_store *bare);
/* Waits for bare->request, of which the call has returned r. What is wrong is on stderr. */
int bare_store_wait_for_request(struct bare_store *bare, int r);

/* Writes each extent, as the next step; and makes that durable. */
int bare_store_take_step(struct bare_store *bare);
int bare_store_commit(struct bare_store *bare);

#endif
