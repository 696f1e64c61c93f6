/* A backend of the engine moves bytes; order, retries and short transfers are the front door's. */
#ifndef TIERD_OFFLOAD_ENGINE_BACKEND_H
#define TIERD_OFFLOAD_ENGINE_BACKEND_H

#include "offload/engine.h"

#define ENGINE_FILES 256

struct engine_ops {
	const char *name;
	/* These four may be NULL: nothing to do. */
	int (*file_add)(struct engine *engine, int file, int fd);
	void (*file_remove)(struct engine *engine, int file);
	int (*buffer_add)(struct engine *engine, void *base, size_t length);
	void (*buffer_remove)(struct engine *engine, void *base);
	/* Starts what is left of a transfer; never more than queue_depth at once. */
	void (*start)(struct engine *engine, struct tier_io *io);
	/* Shows the kernel what was started. */
	void (*flush)(struct engine *engine);
	/* Calls engine_finish() for everything that has ended, also for what could not be started. */
	void (*reap)(struct engine *engine);
	void (*free)(struct engine *engine);
};

/* Embedded first in every backend's own struct. */
struct engine {
	const struct engine_ops *ops;
	unsigned queue_depth, in_flight;
	int fd; /* engine_fd(); the backend's */
	bool is_reaping;
	struct queue waiting[TIER_PRIORITIES];
	int files[ENGINE_FILES]; /* descriptors, or -1 */
	char why[128];
};

/* What is left of a transfer. */
static inline char *engine_rest_buffer(const struct tier_io *io)
{
	return (char *)io->buffer + io->finished;
}

static inline uint64_t engine_rest_offset(const struct tier_io *io)
{
	return io->offset + io->finished;
}

/* The kernel moves less than 2 GiB at once. */
static inline unsigned engine_rest_length(const struct tier_io *io)
{
	size_t rest = io->length - io->finished;

	return rest < (UINT32_C(1) << 30) ? (unsigned)rest : UINT32_C(1) << 30;
}

/* Of the backend, from reap only: a started transfer has moved result bytes, or failed with -errno. */
void engine_finish(struct engine *engine, struct tier_io *io, int result);

/* queue_depth is known, the rest is the backend's to fill. -ENOMEM, or another error and in ret_step what the
 * kernel refused. */
int ring_new(unsigned queue_depth, const char **ret_step, struct engine **ret_engine);
int plain_new(unsigned queue_depth, struct engine **ret_engine);

#endif
