/* The NVMe tier: a file on a path of the node, read and written with O_DIRECT through an engine. */
#ifndef TIERD_OFFLOAD_NVME_H
#define TIERD_OFFLOAD_NVME_H

#include "offload/device/engine.h"

/* The mode of an unfinished file: what a crash leaves of it belongs to nobody. */
#define NVME_UNFINISHED_MODE 01600

struct nvme_config {
	struct engine *engine;	 /* borrowed until tier_free() */
	int directory_fd;	 /* borrowed for the call */
	const char *directory;	 /* its path, for messages */
	const char *name;	 /* of the file in it */
	uint64_t capacity;	 /* bytes; a multiple of 1 MiB */
	bool is_buffered;	 /* do not try O_DIRECT */
	bool is_unfinished;	 /* create it with NVME_UNFINISHED_MODE */
	unsigned device;	 /* of the engine, on which the directory lies */
	struct tier_share share; /* the file's, of the device */
	uint64_t *moved; /* counts the bytes of transfers, by enum tier_direction (read, write); borrowed
			    until tier_free(); or NULL */
};

/* Creates the file, mode 0600 unless it is unfinished, and locks it; tier_free() unlinks it, unless
 * tier_keep() says otherwise. -EEXIST; -EINVAL: the capacity is not a multiple of 1 MiB, or 0. Where the file
 * system refuses O_DIRECT it goes on without, and nvme_tier_is_direct() says so. */
int nvme_tier_new(const struct nvme_config *config, struct tier **ret_tier);

/* Opens a file that was kept, and stays so; capacity is not asked. It waits up to lock_ms for whoever has
 * locked it: writes of a process that was killed can take seconds to end. -EBUSY: it is locked still;
 * -EPERM: its folder is not our own; -ENXIO: it is no regular file; -EINVAL: it is another user's, somebody
 * else could write it, or it is too short. */
int nvme_tier_open(const struct nvme_config *config, unsigned lock_ms, struct tier **ret_tier);

/* Reserves the capacity, so that no later write meets a full disk; slow: may run on another thread, before
 * the first transfer. -ENOSPC: the disk has not that much, and nothing of it
 * is taken. */
int nvme_tier_reserve(struct tier *tier);

bool nvme_tier_is_direct(const struct tier *tier);

#endif
