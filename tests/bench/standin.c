#include "tests/bench/standin.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "common/size.h"
#include "tests/bench/fio.h"

#define DISK_BYTES "3G"
#define COPY_BYTES (64 * MIB)
#define COPY_TURNS 5
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

/* As the kernel's threads do it, from and to memory; the least of some turns. */
static double measure_copy(void)
{
	char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);
	double least = 0;

	for (unsigned turn = 0; from && to && turn < 1 + COPY_TURNS; turn++) {
		double begin;

		memset(from, (int)turn, COPY_BYTES);
		begin = thread_seconds();
		memcpy(to, from, COPY_BYTES);
		/* The first one meets pages that are not there. */
		if (turn == 1 || (turn > 1 && thread_seconds() - begin < least))
			least = thread_seconds() - begin;
	}
	free(from);
	free(to);
	return least / COPY_BYTES;
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
	standin->copy_seconds = measure_copy();
	printf("the stand-in for a fast disk: ext4 on loop devices, with direct I/O, over a tmpfs; a copy "
	       "there "
	       "takes %.3f s of a processor for a GB\n",
	       standin->copy_seconds * 1e9);
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
	double rate = fio_run(context, seconds);

	return rate < FASTEST_DISK ? rate : FASTEST_DISK;
}

double standin_bound(const struct standin *standin, double fio_rate, double byte_seconds)
{
	double processors = (double)sysconf(_SC_NPROCESSORS_ONLN);
	double rate = processors / (byte_seconds + (standin ? standin->copy_seconds : 0));

	return rate < fio_rate ? rate : fio_rate;
}
