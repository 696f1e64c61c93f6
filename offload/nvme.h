/* The NVMe tier: a file on a path of the node, read and written with O_DIRECT through an engine. */
#ifndef TIERD_OFFLOAD_NVME_H
#define TIERD_OFFLOAD_NVME_H

#include "offload/engine.h"

struct nvme_config {
	struct engine *engine; /* borrowed until tier_free() */
	int directory_fd;      /* borrowed for the call */
	const char *directory; /* its path, for messages */
	const char *name;      /* of the file in it; created, or -EEXIST; unlinked by tier_free() */
	uint64_t capacity;     /* bytes; a multiple of 1 MiB */
	bool is_buffered;      /* do not try O_DIRECT */
	unsigned device;       /* of the engine, on which the directory lies */
	unsigned weight;       /* of the file's share of the device; 0: SCHEDULE_DEFAULT_WEIGHT */
};

/* Creates the file, mode 0600. -EINVAL: not a multiple of 1 MiB, or 0. Where the file system refuses O_DIRECT
 * it goes on without, and nvme_is_direct() says so. */
int nvme_tier_new(const struct nvme_config *config, struct tier **ret_tier);

/* Reserves the capacity, so that no later write meets a full disk; slow: may run on another thread, before
 * the first transfer. -ENOSPC: the disk has not that much, and nothing of it
 * is taken. */
int nvme_tier_reserve(struct tier *tier);

/* Gives the disk space back and removes the file's name. Slow where the file is large, so it may run on
 * another thread, after the last transfer; tier_free() does it otherwise. */
void nvme_tier_discard(struct tier *tier);

bool nvme_tier_is_direct(const struct tier *tier);

#endif
