/* The disk that a benchmark measures: an engine, a folder of its own there, and buffers to move. */
#ifndef TIERD_TESTS_BENCH_DISK_H
#define TIERD_TESTS_BENCH_DISK_H

#include "offload/device/memory.h"
#include "offload/device/nvme.h"

struct bench_disk {
	char folder[4096];
	int folder_fd;
	struct engine *engine;
	struct memory buffers; /* a mebibyte each */
};
#define BENCH_DISK_INIT                                                                                      \
	{                                                                                                    \
		.folder_fd = -1, .buffers = MEMORY_INIT                                                      \
	}

/* With so many buffers, of huge pages, as the daemon's are. */
int bench_disk_open(struct bench_disk *disk, unsigned depth);
/* Reserves a file; its tier is the caller's. */
int bench_disk_add(const struct bench_disk *disk, uint64_t bytes, struct tier **ret_tier);
/* Frees its file. The disk may never have been opened, or only in part. */
void bench_disk_close(struct bench_disk *disk);

#endif
