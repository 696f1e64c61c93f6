/* An engine moves bytes between files and memory without blocking the loop: io_uring where the kernel allows
 * it, else threads with pread and pwrite. */
#ifndef TIERD_OFFLOAD_ENGINE_H
#define TIERD_OFFLOAD_ENGINE_H

#include <stdbool.h>

#include "offload/device/tier.h"

struct engine;

#define ENGINE_MAX_DEVICES 16
#define ENGINE_DEFAULT_BACKGROUND_BYTES ((size_t)4 << 20)

struct engine_config {
	unsigned queue_depth; /* transfers that a device sees at once; more wait here, in a schedule */
	unsigned devices;     /* 0: one */
	/* That a device sees at once of all but demand reads; up to four times as much where none come. 0:
	 * the default. */
	size_t background_bytes;
	bool is_plain; /* do not try io_uring */
};

/* -EINVAL: queue_depth is 0 or above 4096, or there are too many devices. All devices together see at most
 * 16384 transfers, with the plain backend 8 each. Where io_uring is refused the plain backend is taken, and
 * engine_why() says why. */
int engine_new(const struct engine_config *config, struct engine **ret_engine);

/* Everything submitted must be done. */
struct engine *engine_free(struct engine *engine);
DEFINE_FREEP(struct engine *, engine_free)

const char *engine_name(const struct engine *engine); /* "io_uring" or "plain" */
const char *engine_why(const struct engine *engine);  /* why it is not io_uring; NULL if it is */

/* Makes a file known to the engine. The descriptor stays the caller's, open until engine_file_remove(), when
 * all its transfers are done. It lies on that device, of which it gets that share (see schedule.h) beside the
 * other files. Returns the file's slot, or -errno (-ENFILE: all slots are taken). */
int engine_file_add(struct engine *engine, int fd, unsigned device, const struct tier_share *share);
/* From its next transfer on. */
void engine_file_weigh(struct engine *engine, int file, const struct tier_share *share);
void engine_file_remove(struct engine *engine, int file);

/* Pins a region, in pieces of at most 1 GiB, so that transfers need not; allocates its pages before that. May
 * be slow, and may be called from another thread than the loop's, whose transfers go on meanwhile. base:
 * page-aligned. -ENOMEM or -EPERM (RLIMIT_MEMLOCK), -ENOSPC (no slots): nothing is pinned, and transfers
 * there still work. A transfer whose buffer lies in no region, or only partly, works without it. The plain
 * backend has nothing to pin, and returns 0; a kernel without such tables, -EOPNOTSUPP. No transfer may be on
 * its way there when a region is removed. */
int engine_buffer_add(struct engine *engine, void *base, size_t length);
void engine_buffer_remove(struct engine *engine, void *base, size_t length);

/* How long the device has had transfers to do, or flushes, idle ones aside, up to now. They are over when
 * they are reaped. */
uint64_t engine_busy_ns(const struct engine *engine, unsigned device);

/* What a device sees at once at most, of all but demand reads. */
uint64_t engine_most_bytes(const struct engine *engine);

/* Bytes that are pinned. */
uint64_t engine_pinned(struct engine *engine);

/* Queues a transfer at offset io->offset of the file, or a flush of the file. A transfer is moved in pieces,
 * one after the other. Short transfers are resumed, interrupted ones tried again; a read beyond the end of
 * the file is -EIO. */
int engine_submit(struct engine *engine, int file, struct tier_io *io);

/* What is left of a transfer that is submitted and not done goes on at a higher priority. */
void engine_raise(struct engine *engine, struct tier_io *io, enum tier_priority priority);

/* Readable while completions wait for engine_reap(), which runs their done() and starts what waits. */
int engine_fd(const struct engine *engine);
void engine_reap(struct engine *engine);

#endif
