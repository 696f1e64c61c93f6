/* A disk that loses power: writes that no flush has covered are kept, lost or torn, each for itself.
 * Transfers end in any order. Everything follows from the seed. */
#ifndef TIERD_TESTS_UNIT_SIM_DISK_H
#define TIERD_TESTS_UNIT_SIM_DISK_H

#include <stdbool.h>

#include "offload/device/tier.h"

#define SIM_SECTOR 512

struct sim_disk;

/* Sees what a session does; either may be NULL. */
struct sim_observer {
	void (*submitted)(struct sim_observer *observer, struct sim_disk *disk, const struct tier_io *io);
	void (*ended)(struct sim_observer *observer, struct sim_disk *disk, const struct tier_io *io,
		      int status);
};

/* Memory is taken as it is written. */
struct sim_disk *sim_disk_new(size_t bytes, uint64_t seed);
void sim_disk_free(struct sim_disk *disk);

/* A new session with it: the tier is the caller's, and is freed before the next one is made. */
struct tier *sim_disk_tier(struct sim_disk *disk);

/* Ends one of the transfers that have been submitted. False: there is none. */
bool sim_disk_turn(struct sim_disk *disk);

/* The flush that is countdown-th from now on fails: some of what it should have covered is lost. 0: none. */
void sim_disk_fail_flush(struct sim_disk *disk, unsigned countdown);

/* The session is over: whatever it has submitted, or still submits, ends with -EIO, and of the writes that
 * had been submitted each has happened, or not. After a power failure every write that no flush has covered
 * has been kept, lost or torn. */
void sim_disk_kill(struct sim_disk *disk);
void sim_disk_fail_power(struct sim_disk *disk);

/* Bytes that this session was asked to move. */
uint64_t sim_disk_moved(const struct sim_disk *disk, enum tier_direction direction);
/* What its tier was weighed with last; 0: it was not. */
unsigned sim_disk_weight(const struct sim_disk *disk);

/* What a reader would find there. */
void sim_disk_read(struct sim_disk *disk, uint64_t offset, void *bytes, size_t length);
/* What is there after a power failure in any case. */
void sim_disk_read_safe(const struct sim_disk *disk, uint64_t offset, void *bytes, size_t length);
/* Whether no write there is on its way, or waits for a flush. */
bool sim_disk_is_safe(const struct sim_disk *disk, uint64_t offset, uint64_t length);
/* NULL: nobody looks. */
void sim_disk_observe(struct sim_disk *disk, struct sim_observer *observer);
/* Changes it, as no writer would. */
void sim_disk_flip(struct sim_disk *disk, uint64_t offset, uint8_t bits);

/* Writes and flushes that have ended so far. */
uint64_t sim_disk_count(const struct sim_disk *disk);
/* Reads that have seen what no flush had covered. */
unsigned sim_disk_unsafe_reads(const struct sim_disk *disk);
/* Writes that no flush has covered. */
unsigned sim_disk_fresh(const struct sim_disk *disk);

#endif
