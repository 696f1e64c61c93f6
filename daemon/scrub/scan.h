/* A scan reads extents of a job's state on NVMe to check their checksums, one after the other, when the
 * device has nothing else to do. It also reads the nodes of the maps that lead there, and extents that only
 * snapshots have. The job remembers what is damaged. */
#ifndef TIERD_DAEMON_SCAN_H
#define TIERD_DAEMON_SCAN_H

#include "daemon/durability/durability.h"
#include "offload/store/store_verify.h"

struct job;

/* Embedded in its owner. The job is not freed while one is under way. */
struct scan {
	struct job *job;
	/* Extents; after done() those before next have been read. found() may lower end. */
	uint64_t first, next, end;
	/* The job cannot be freed in it. */
	void (*found)(struct scan *scan, const struct store_flaw *flaw);
	/* 0; -ENOENT: the job goes; -ECANCELED: it was stopped; -ENOMEM. Once, on the loop, never inside a
	 * call. */
	void (*done)(struct scan *scan, int status);

	uint64_t bytes;	 /* that were read since scan_start() */
	bool is_stopped; /* its owner sets it: it ends when what it reads has been read */
	bool by_blocks;	 /* the extent has a bad block: they are read one by one */
	bool is_in_group;
	uint64_t damaged; /* blocks, of the extent or group that is being read */
	uint64_t piece_end;
	struct store_transfer transfer;
	char *buffer;
	struct store_task task; /* what commits wait for */
	struct store_verification group;
};

/* Whether the job has something on NVMe that can be read now; else a negative errno, with a message. */
int scan_check(const struct job *job, char *message, size_t size);

/* Of a job that can be scanned; first < end. -ENOMEM: done() never runs. */
int scan_start(struct scan *scan, struct job *job, uint64_t first, uint64_t end);
/* None is under way. */
void scan_clear(struct scan *scan);

#endif
