/* A backend of the engine moves bytes; order, retries and short transfers are the front door's. */
#ifndef TIERD_OFFLOAD_ENGINE_BACKEND_H
#define TIERD_OFFLOAD_ENGINE_BACKEND_H

#include "offload/device/engine.h"
#include "offload/device/schedule.h"

#define ENGINE_FILES 256
_Static_assert(ENGINE_FILES <= SCHEDULE_MAX_FLOWS, "each file is a flow");

struct engine_ops {
	const char *name;
	/* These five may be NULL: nothing to do. */
	int (*file_add)(struct engine *engine, int file, int fd);
	void (*file_remove)(struct engine *engine, int file);
	int (*buffer_add)(struct engine *engine, void *base, size_t length);
	void (*buffer_remove)(struct engine *engine, void *base, size_t length);
	uint64_t (*pinned)(struct engine *engine);
	/* Starts the next piece of a transfer, or a flush; never more than queue_depth at once for each
	 * device. */
	void (*start)(struct engine *engine, struct tier_io *io);
	/* Shows the kernel what was started. */
	void (*flush)(struct engine *engine);
	/* Calls engine_finish() for everything that has ended, engine_refuse() for what could not be started.
	 */
	void (*reap)(struct engine *engine);
	void (*free)(struct engine *engine);
};

/* Embedded first in every backend's own struct. */
struct engine {
	const struct engine_ops *ops;
	unsigned queue_depth; /* of each device; the backend's, at most what it was asked for */
	int fd;		      /* engine_fd(); the backend's */
	bool is_reaping;
	unsigned device_count;
	struct schedule *devices;
	struct engine_busy {
		bool is_busy;
		uint64_t ns, since_ns; /* ns: before since_ns */
	} busy[ENGINE_MAX_DEVICES];
	struct {
		int fd; /* -1: the slot is free */
		struct schedule_flow flow;
	} files[ENGINE_FILES];
	char why[128];
};

/* What is left of a transfer; a flush has no buffer. */
static inline char *engine_rest_buffer(const struct tier_io *io)
{
	return io->buffer ? (char *)io->buffer + io->finished : NULL;
}

static inline uint64_t engine_rest_offset(const struct tier_io *io)
{
	return io->offset + io->finished;
}

static inline unsigned engine_piece_length(const struct tier_io *io)
{
	return (unsigned)io->piece;
}

/* Of the backend, from reap only: a started transfer has moved result bytes, or failed with -errno. */
void engine_finish(struct engine *engine, struct tier_io *io, int result);
/* In the same way: the kernel has not taken it, with this negative errno, and has done nothing of it. */
void engine_refuse(struct engine *engine, struct tier_io *io, int error);

/* -ENOMEM, or another error and in ret_step what the
 * kernel refused. */
int ring_new(unsigned queue_depth, unsigned devices, const char **ret_step, struct engine **ret_engine);
int plain_new(unsigned queue_depth, unsigned devices, struct engine **ret_engine);

#endif
