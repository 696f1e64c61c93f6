#include "tests/bench/standin.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/cleanup.h"

#define DISK_BYTES "3G"
/* Bytes a second. */
#define FASTEST_DISK 14e9

/* -o loop: the device goes with the last process that sees the mount, however it ends. */
static const char script[] =
	"set -e; mount -t tmpfs -o size=90%%,huge=within_size tierd-bench '%s'; cd '%s'; for i in 0 1; do "
	"truncate -s " DISK_BYTES " file$i; mkfs.ext4 -qF -E lazy_itable_init=0,lazy_journal_init=0 file$i; "
	"mkdir disk$i; mount -o loop file$i disk$i; "
	"losetup --direct-io=on $(findmnt -no SOURCE \"$PWD/disk$i\"); done";

/* What all processors have worked since ever, but for what this process has waited for. */
static double busy_seconds(void)
{
	unsigned long long user, nice, system, idle, disk, interrupts, late;
	FILE *file = fopen("/proc/stat", "re");
	struct rusage children;
	int found = 0;

	if (file) {
		found = fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu", &user, &nice, &system, &idle,
			       &disk, &interrupts, &late);
		fclose(file);
	}
	if (found != 7)
		return 0;
	getrusage(RUSAGE_CHILDREN, &children);
	return (double)(user + nice + system + interrupts + late) / (double)sysconf(_SC_CLK_TCK) -
	       (double)(children.ru_utime.tv_sec + children.ru_stime.tv_sec) -
	       (double)(children.ru_utime.tv_usec + children.ru_stime.tv_usec) / 1e6;
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

double standin_fio_run(struct standin *standin, const struct fio_job *fio, double seconds)
{
	struct fio_job job = *fio;
	double busy = busy_seconds(), rate;

	job.depth = fio->depth * fio->block_mib;
	job.block_mib = 1;
	rate = fio_run(&job, seconds);
	if (rate < 0)
		return rate;
	standin->byte_seconds = (busy_seconds() - busy) / (rate * seconds);
	return rate < FASTEST_DISK ? rate : FASTEST_DISK;
}

double standin_bound(const struct standin *standin, double fio_rate, double byte_seconds)
{
	double processors = (double)sysconf(_SC_NPROCESSORS_ONLN);
	double rate = processors / (byte_seconds + (standin ? standin->byte_seconds : 0));

	return rate < fio_rate ? rate : fio_rate;
}
