/* fio: what the device gives, for comparison: io_uring, direct, registered files and buffers.
 *
 * Its buffers are of huge pages, as the daemon's are, where glibc can be told so (2.35), however few: a
 * mebibyte of small ones is 256 segments for the device's queue, and fio then moves little more than half as
 * much. */
#ifndef TIERD_TESTS_BENCH_FIO_H
#define TIERD_TESTS_BENCH_FIO_H

#include <stdbool.h>

#include "common/size.h"

#define FIO_FILE_BYTES GIB
/* What its transfers have together where they are compared with an arena's. The disk of a virtual machine may
 * be a process that copies, which is faster by half where it copies into what a cache still has (8 MiB); so
 * fio moves through no less memory than tierd does, and through little more. */
#define FIO_ARENA_MIB 256U
/* Where they are compared with steps, of whose staging buffers some eight are in use, of 3 MiB each; and with
 * trainings, which have a small arena besides. */
#define FIO_STAGING_MIB 32U
#define FIO_TRAINING_MIB 128U

/* Reads or writes the file ("read", "write"), or as much of both ("readwrite"), of FIO_FILE_BYTES. */
struct fio_job {
	const char *direction;
	unsigned depth;	    /* transfers at once */
	unsigned block_mib; /* of each; 0: 1 */
	char file[4200];    /* see fio_make_file(), or fio_use_largest_file() */
	bool is_found;	    /* another's file, of whatever size, which is read only */
};

bool fio_is_installed(void);
#define FIO_MISSING "fio is not installed: apt-get install fio"

/* Makes the job's file in a folder, and writes all of it: blocks that are reserved alone are slower. */
int fio_make_file(struct fio_job *job, const char *folder);

/* Makes one of blocks that are reserved and not written, as those of a new store are: for one run. */
int fio_reserve_file(struct fio_job *job, const char *folder);

/* The job reads the largest file below a folder. -ENOENT. */
int fio_use_largest_file(struct fio_job *job, const char *folder);

/* A side of a comparison, whose context is a struct fio_job. seconds 0: the whole file, once. Bytes per
 * second, or a negative errno. */
double fio_run(void *context, double seconds);

/* Looks for the depth, of 8 to 64, at which the job is fastest, and keeps it, with blocks so large that it
 * has that memory, or a mebibyte. Says how fast it was at each of them. */
int fio_find_depth(struct fio_job *job, unsigned memory_mib, double seconds);

#endif
