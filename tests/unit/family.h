/* A family: a job and its forks in one store, on disks that lose power. They write, commit, keep snapshots,
 * go and come back, several at the same time; what each of them has committed is remembered. */
#ifndef TIERD_TESTS_UNIT_FAMILY_H
#define TIERD_TESTS_UNIT_FAMILY_H

#include "offload/store/store.h"
#include "tests/unit/sim_disk.h"
#include "tests/unit/sim_watch.h"

#define FAMILY_JOBS 4
#define FAMILY_DISKS 3
#define FAMILY_SNAPSHOTS 4 /* of all of them */
/* Three leaves; of each extent a page is used. */
#define FAMILY_EXTENTS 260
#define FAMILY_FIXED 100 /* of them */
#define FAMILY_PAGE 4096
#define FAMILY_WRITES 24

/* What somebody has asked for, and may have happened or not when a session is cut off. */
enum family_wish { WISH_NONE, WISH_COMMIT, WISH_FORK, WISH_TAKE, WISH_DELETE, WISH_ROLL_BACK, WISH_DROP };

struct family_state {
	char name[STORE_SNAPSHOT_NAME_BYTES]; /* "": there is none */
	uint64_t step;
	uint64_t content[FAMILY_EXTENTS];
};

struct family;

struct family_job {
	struct family *family;
	struct store *store; /* NULL: it is not open */
	struct store_request request;
	bool is_asking, is_wishing, has_ended; /* wishing: what is asked for is the wish */
	int status;
	enum family_wish wish;
	struct family_state committed, wished;
	struct family_state kept[FAMILY_SNAPSHOTS];
	struct family_job *born; /* of a wish to fork */
	struct store *opened;
	uint64_t content[FAMILY_EXTENTS]; /* now */
	bool is_written[FAMILY_EXTENTS];
	unsigned writes;
};

struct family_write {
	struct store_transfer transfer;
	struct family_job *job; /* NULL: it is free */
	unsigned extent;
	uint64_t content;
	unsigned char *page;
};

struct family {
	unsigned disk_count, snapshots; /* that there is room for, as far as it is asked for */
	struct sim_disk *disks[FAMILY_DISKS];
	struct sim_watch *watch;
	uint64_t place_bytes; /* and of an extent of what may change */
	struct workers *workers;
	struct family_job jobs[FAMILY_JOBS];
	struct family_write writes[FAMILY_WRITES];
	uint64_t random, last_content;
	unsigned last_name;
	bool is_cut; /* the session is over */
};

/* One job, committed, on disks of its own; of an even seed what may change has wider blocks than what is
 * fixed.
 */
void family_open(struct family *family, unsigned disks, uint64_t seed);
void family_open_with(struct family *family, unsigned disks, uint64_t seed, unsigned snapshots);
void family_close(struct family *family);

unsigned family_choose(struct family *family, unsigned bound);
void family_turn(struct family *family);
/* Until nothing is on its way. */
void family_settle(struct family *family);

/* Until the request that r began, job->request, has ended well. */
void family_wait(struct family_job *job, int r);
/* Changes both copies of the root of the first snapshot's map, or back. */
void family_flip_kept(struct family_job *job);
/* Of the map of a job; opener has the store open. */
void family_flip(struct family_job *opener, const struct family_job *job);

/* Each begins, or does nothing where it cannot be. */
void family_write(struct family *family, struct family_job *job);
/* All that may change. */
void family_rewrite(struct family *family, struct family_job *job);
/* What is fixed is not written any more. */
void family_expect_settled(struct family_job *job);
void family_commit(struct family_job *job);
void family_fork(struct family_job *job);
void family_take(struct family_job *job);
void family_delete(struct family_job *job);
void family_roll_back(struct family_job *job);
void family_drop(struct family_job *job);
/* While others stay. */
void family_leave(struct family_job *job);
void family_come_back(struct family_job *job);

/* The session ends, and another finds all that was acknowledged, every byte, and what was on its way whole or
 * not at all. */
void family_reopen(struct family *family);
/* Another session, which has the store of the first job alone, as that of the first one there was. */
void family_open_first(struct family *family);
/* Places that are free: of extents on each disk, and of nodes. Nothing is on its way. */
void family_count_free(struct family *family, uint64_t ret_free[FAMILY_DISKS + 1]);
/* That each disk has for extents. */
unsigned family_count_places(struct family *family);

#endif
