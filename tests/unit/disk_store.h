/* A durable store on disks that lose power, under rewrites of its extents, some of them held back, and
 * commits, some of them at the same time. It remembers what every step was. */
#ifndef TIERD_TESTS_UNIT_DISK_STORE_H
#define TIERD_TESTS_UNIT_DISK_STORE_H

#include "offload/store/store.h"
#include "tests/unit/sim_disk.h"
#include "tests/unit/sim_watch.h"

#define DISK_MAX_DEVICES 3
/* Three leaves; of each extent a page is used, so that it is cheap. */
#define DISK_FEW_EXTENTS 260
#define DISK_PAGE 4096
#define DISK_WIDE_EXTENT (STORE_EXTENT_BLOCKS * (UINT64_C(260) << 10))
#define DISK_STEPS 64
#define DISK_SLOTS 24

struct disk_slot {
	struct store_transfer transfer;
	struct disk_store *owner;
	unsigned extent;
	uint64_t content;
	bool is_busy;
	unsigned char *page;
};

struct disk_store {
	unsigned device_count, extents, snapshots;
	unsigned fixed;	      /* extents, the first ones */
	uint64_t place_bytes; /* and of an extent of its second stream */
	struct sim_disk *disks[DISK_MAX_DEVICES];
	struct sim_watch *watch; /* NULL: of so many extents that it would take long */
	struct workers *workers;
	struct store *store;
	struct disk_slot slots[DISK_SLOTS];
	struct store_request request;
	unsigned done_count;
	int status;
	bool is_dead, is_committing;
	uint64_t random, step; /* in flight, or the last */
	uint64_t acknowledged;
	uint64_t *content;
	bool *is_written; /* in flight */
	uint64_t *held;	  /* what extents become when they are published; 0: they do not */
	uint64_t *history[DISK_STEPS];
	uint64_t next_content;
};

/* A new one on disks of its own, which the seed rules, of an even number of extents, with room for snapshots.
 * Of an even seed the second of its two streams has wider blocks than the first. */
void disk_store_open(struct disk_store *disk, unsigned extents, unsigned devices, unsigned snapshots,
		     uint64_t seed);
/* The same, of whose extents so many are written before the first commit alone. */
void disk_store_open_fixed(struct disk_store *disk, unsigned extents, unsigned fixed, unsigned devices,
			   unsigned snapshots, uint64_t seed);
void disk_store_close(struct disk_store *disk);

/* The session is over, once what is on its way has ended; another must find the last step that was
 * acknowledged, or the one that was on its way, every byte. */
void disk_store_end(struct disk_store *disk);
void disk_store_open_again(struct disk_store *disk);
/* All disks at once: sim_disk_fail_power(), sim_disk_kill(). */
void disk_store_fail_all(struct disk_store *disk, void (*end)(struct sim_disk *disk));

/* Below bound; from the seed. */
unsigned disk_store_choose(struct disk_store *disk, unsigned bound);
/* Something that may be done is done; false: nothing is left but what workers have. */
bool disk_store_turn(struct disk_store *disk);
/* Until the request that r began has ended; its status. */
int disk_store_wait(struct disk_store *disk, int r);
/* Until no transfer is on its way. */
void disk_store_drain(struct disk_store *disk);

/* One that is not being rewritten, with a slot left; and as soon as that is so. */
void disk_store_rewrite(struct disk_store *disk, unsigned extent);
/* The same, held back until it is published or withdrawn. It stands as the last commit has it. */
void disk_store_hold(struct disk_store *disk, unsigned extent);
bool disk_store_may_hold(const struct disk_store *disk, unsigned extent);
/* All that has been held back and is not on its way; is_seen: it is published. */
void disk_store_end_hold(struct disk_store *disk, bool is_seen);
void disk_store_rewrite_soon(struct disk_store *disk, unsigned extent);
/* All that may be, until that has ended. */
void disk_store_rewrite_all(struct disk_store *disk);
/* It is refused, as one of what is fixed and committed. */
void disk_store_expect_settled(struct disk_store *disk, unsigned extent);
/* Of what is whole: as the daemon does it, between two sweeps. */
void disk_store_begin_commit(struct disk_store *disk);
void disk_store_await_commit(struct disk_store *disk);
/* Which must succeed. */
void disk_store_commit(struct disk_store *disk);
/* A snapshot: their status. */
int disk_store_take(struct disk_store *disk, const char *name);
int disk_store_delete(struct disk_store *disk, const char *name);
/* Anything of that. */
void disk_store_act(struct disk_store *disk);

/* Reads all extents of the store, or of a view of it. */
void disk_store_expect(struct disk_store *disk, struct store *store, const uint64_t *content);

#endif
