#include <dirent.h>
#include <errno.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "client/tierctl/doctor.h"
#include "common/cleanup.h"
#include "common/size.h"

/* Newer than the C library's headers. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

/* ---- io_uring --------------------------------------------------------------------------------------------
 */

static const char *io_uring_remedy(int error)
{
	if (error == ENOSYS)
		return "a kernel with io_uring (5.11 or newer)";
	if (error == ENOMEM)
		return "a larger limit of locked memory (ulimit -l)";
	return "sysctl kernel.io_uring_disabled=0; in a container, a seccomp profile that allows it";
}

/* A running daemon says what it got; else we try to get the same. */
void doctor_look_at_io_uring(struct doctor *doctor)
{
	struct io_uring_params parameters = { 0 };
	int ring;

	if (doctor->node) {
		bool has_it = strcmp(doctor->node->io_engine, "io_uring") == 0;

		doctor_add(doctor, has_it ? FINDING_FOUND : FINDING_MISSING, "io_uring",
			   has_it ? NULL
				  : "engine = auto in the configuration; sysctl kernel.io_uring_disabled=0",
			   "tierd uses %s%s%s", doctor->node->io_engine,
			   *doctor->node->io_engine_why ? ": " : "", doctor->node->io_engine_why);
		return;
	}
	ring = (int)syscall(__NR_io_uring_setup, 8, &parameters);
	if (ring < 0) {
		doctor_add(doctor, FINDING_MISSING, "io_uring", io_uring_remedy(errno),
			   "the kernel refuses it: %s", strerror(errno));
		return;
	}
	close(ring);
	doctor_add(doctor, FINDING_FOUND, "io_uring", NULL, "the kernel grants it to this user");
}

/* ---- Huge pages ------------------------------------------------------------------------------------------
 */

#define HUGE_BYTES (2 * MIB)

/* As tierd does with its arenas: a page of a memfd, and the kernel is asked to make it a huge one. */
static int try_huge_page(void)
{
	_cleanup_close_ int fd = memfd_create("doctor", MFD_CLOEXEC);
	char *base, *aligned;
	int r = 0;

	if (fd < 0 || ftruncate(fd, 2 * HUGE_BYTES) < 0)
		return -errno;
	base = mmap(NULL, 2 * HUGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return -errno;
	aligned = base + (-(uintptr_t)base & (HUGE_BYTES - 1));
	if (mmap(aligned, HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED ||
	    madvise(aligned, 4096, MADV_POPULATE_WRITE) < 0 ||
	    madvise(aligned, HUGE_BYTES, MADV_COLLAPSE) < 0)
		r = -errno;
	munmap(base, 2 * HUGE_BYTES);
	return r;
}

void doctor_look_at_huge_pages(struct doctor *doctor)
{
	int r = doctor->node && doctor->node->has_huge_pages ? 0 : try_huge_page();

	if (doctor->node && doctor->node->has_huge_pages)
		doctor_add(doctor, FINDING_FOUND, "huge pages", NULL, "tierd has them");
	else if (r == 0)
		doctor_add(doctor, FINDING_FOUND, "huge pages", NULL, "the kernel makes them when asked");
	else
		doctor_add(doctor, FINDING_POOR, "huge pages",
			   r == -EINVAL
				   ? "a kernel of 6.1 or newer, and madvise in "
				     "/sys/kernel/mm/transparent_hugepage/enabled"
				   : "more free memory, in one piece: start tierd soon after the machine",
			   "the kernel makes none: %s", strerror(-r));
}
