/* A stand-in for fast disks: ext4 on loop devices, with direct I/O, over files in a tmpfs. It moves bytes as
 * fast as the kernel copies them. These copies take processor time of the kernel's own threads, which none of
 * the processes is charged for. It needs root; nobody else sees it, and it ends with the program. */
#ifndef TIERD_TESTS_BENCH_STANDIN_H
#define TIERD_TESTS_BENCH_STANDIN_H

#include "tests/bench/fio.h"

#define STANDIN_DISKS 2

struct standin {
	char folder[64];
	char disks[STANDIN_DISKS][80];
	/* Of processors for a byte, but for fio's own, while that ran last: the kernel's threads copy, and
	 * complete what a device would. */
	double byte_seconds;
};

/* Makes it, and makes its first disk $TMPDIR. -ENOTSUP: not here; ret_why says why. */
int standin_open(struct standin *standin, const char **ret_why);
/* It may not have been made. $TMPDIR still names it. */
void standin_close(struct standin *standin);

/* As fio_run(), but no more than the fastest of today's disks gives: where memory is faster, the stand-in is,
 * too, and then there is nothing that it stands for. */
double standin_fio_run(struct standin *standin, const struct fio_job *fio, double seconds);

/* The bytes a second that there can be at most: what fio moves, or fewer if the processors do not keep up
 * with it, where a byte takes so many seconds of one, and what it takes the stand-in; NULL: there is none. */
double standin_bound(const struct standin *standin, double fio_rate, double byte_seconds);

#endif
