#include "tests/bench/standin.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "tests/bench/fio.h"

#define DISK_BYTES "3G"
#define COPY_BYTES (64 * MIB)
#define COPY_TURNS 5
#define MAX_COPIERS 64
/* Of a mebibyte each: more than a cache holds. A device writes to memory, and so does tierd, whose arena is
 * as large; a loop device copies into what fio has in the cache half as fast again. */
#define FIO_DEPTH 256
/* Bytes a second. */
#define FASTEST_DISK 14e9

/* -o loop: the device goes with the last process that sees the mount, however it ends. */
static const char script[] =
	"set -e; mount -t tmpfs -o size=90%%,huge=within_size tierd-bench '%s'; cd '%s'; for i in 0 1; do "
	"truncate -s " DISK_BYTES " file$i; mkfs.ext4 -qF -E lazy_itable_init=0,lazy_journal_init=0 file$i; "
	"mkdir disk$i; mount -o loop file$i disk$i; "
	"losetup --direct-io=on $(findmnt -no SOURCE \"$PWD/disk$i\"); done";

static double thread_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

struct copier {
	pthread_t thread;
	pthread_barrier_t *start;
	double seconds; /* for a byte */
};

/* From and to memory, as the kernel's threads do it; the median of some turns. */
static void *copy_for(void *context)
{
	struct copier *copier = context;
	char *from = aligned_alloc(2 * MIB, COPY_BYTES), *to = aligned_alloc(2 * MIB, COPY_BYTES);
	double seconds[COPY_TURNS];

	if (from && to) {
		(void)madvise(from, COPY_BYTES, MADV_HUGEPAGE);
		(void)madvise(to, COPY_BYTES, MADV_HUGEPAGE);
		memset(from, 1, COPY_BYTES);
		memset(to, 2, COPY_BYTES);
	}
	pthread_barrier_wait(copier->start);
	for (unsigned turn = 0; from && to && turn < COPY_TURNS; turn++) {
		double begin = thread_seconds();

		memcpy(to, from, COPY_BYTES);
		seconds[turn] = thread_seconds() - begin;
	}
	copier->seconds = from && to ? bench_median(seconds, COPY_TURNS) / COPY_BYTES : 0;
	free(from);
	free(to);
	return NULL;
}

/* Where all processors copy at once, as they do at the bound: they share the way to memory, and each of two
 * copies a third slower than one alone. 0: not known. */
static double measure_copy(void)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned count = processors < MAX_COPIERS ? (unsigned)processors : MAX_COPIERS;
	struct copier copiers[MAX_COPIERS] = { 0 };
	pthread_barrier_t start;
	double sum = 0;

	pthread_barrier_init(&start, NULL, count);
	for (unsigned i = 0; i < count; i++) {
		copiers[i].start = &start;
		if (pthread_create(&copiers[i].thread, NULL, copy_for, &copiers[i]) != 0)
			abort();
	}
	for (unsigned i = 0; i < count; i++) {
		pthread_join(copiers[i].thread, NULL);
		sum += copiers[i].seconds;
	}
	pthread_barrier_destroy(&start);
	return sum / count;
}

int standin_open(struct standin *standin, const char **ret_why)
{
	char command[sizeof(script) + 2 * sizeof(standin->folder)];

	*ret_why = "a stand-in for a fast disk takes root: loop devices over a tmpfs";
	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -ENOTSUP;
	snprintf(standin->folder, sizeof(standin->folder), "/tmp/tierd-standin-XXXXXX");
	if (!mkdtemp(standin->folder)) {
		standin->folder[0] = '\0';
		return -errno;
	}
	for (unsigned i = 0; i < STANDIN_DISKS; i++)
		snprintf(standin->disks[i], sizeof(standin->disks[i]), "%s/disk%u", standin->folder, i);
	snprintf(command, sizeof(command), script, standin->folder, standin->folder);
	*ret_why = "no stand-in for a fast disk: ext4 on loop devices over a tmpfs cannot be mounted here";
	if (system(command) != 0)
		return -ENOTSUP;
	setenv("TMPDIR", standin->disks[0], true);
	puts("the stand-in for a fast disk: ext4 on loop devices, with direct I/O, over a tmpfs");
	return 0;
}

void standin_close(struct standin *standin)
{
	if (!standin->folder[0])
		return;
	for (unsigned i = 0; i < STANDIN_DISKS; i++)
		(void)umount2(standin->disks[i], MNT_DETACH);
	(void)umount2(standin->folder, MNT_DETACH);
	(void)rmdir(standin->folder);
	standin->folder[0] = '\0';
}

double standin_fio_run(void *context, double seconds)
{
	struct fio_job job = *(const struct fio_job *)context;
	double rate;

	job.depth = FIO_DEPTH;
	job.block_mib = 1;
	rate = fio_run(&job, seconds);
	return rate < FASTEST_DISK ? rate : FASTEST_DISK;
}

double standin_bound(const struct standin *standin, double fio_rate, double byte_seconds)
{
	double processors = (double)sysconf(_SC_NPROCESSORS_ONLN);
	double rate = processors / (byte_seconds + (standin ? measure_copy() : 0));

	return rate < fio_rate ? rate : fio_rate;
}
