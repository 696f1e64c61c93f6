/* The backend for kernels and containers that refuse io_uring: workers that call pread, pwrite and fdatasync.
 */
#include <assert.h>
#include <errno.h>

#include "common/workers.h"
#include "offload/device/engine_backend.h"

/* Of each device: what is queued here could not be overtaken, and a slow device shall not take the threads of
 * another. */
#define MAX_DEPTH 8

struct plain_operation {
	struct work work;
	struct queue link; /* while free */
	struct plain_engine *plain;
	struct tier_io *io;
	int fd;
	int result;
};

struct plain_engine {
	struct engine engine;
	struct workers *workers;
	struct queue free;
	struct plain_operation operations[];
};

static ssize_t perform(int fd, const struct tier_io *io)
{
	void *buffer = engine_rest_buffer(io);
	size_t length = engine_piece_length(io);
	off_t offset = (off_t)engine_rest_offset(io);

	if (io->direction == TIER_FLUSH)
		return fdatasync(fd);
	return io->direction == TIER_READ ? pread(fd, buffer, length, offset)
					  : pwrite(fd, buffer, length, offset);
}

static void operation_run(struct work *work)
{
	struct plain_operation *operation = container_of(work, struct plain_operation, work);
	ssize_t n = perform(operation->fd, operation->io);

	operation->result = n < 0 ? -errno : (int)n;
}

static void operation_done(struct work *work)
{
	struct plain_operation *operation = container_of(work, struct plain_operation, work);
	struct plain_engine *plain = operation->plain;

	queue_push_front(&plain->free, &operation->link);
	engine_finish(&plain->engine, operation->io, operation->result);
}

static void plain_start(struct engine *engine, struct tier_io *io)
{
	struct plain_engine *plain = container_of(engine, struct plain_engine, engine);
	struct queue *link = queue_pop(&plain->free);
	struct plain_operation *operation;

	assert(link);
	operation = queue_entry(link, struct plain_operation, link);
	operation->io = io;
	operation->fd = engine->files[io->file].fd;
	operation->work.urgency = io->priority == TIER_DEMAND ? WORK_URGENT : WORK_NORMAL;
	workers_submit(plain->workers, &operation->work);
}

/* Workers see each operation at once. */
static void plain_flush(struct engine *engine)
{
}

static void plain_reap(struct engine *engine)
{
	struct plain_engine *plain = container_of(engine, struct plain_engine, engine);

	workers_reap(plain->workers);
}

static void plain_free(struct engine *engine)
{
	struct plain_engine *plain = container_of(engine, struct plain_engine, engine);

	plain->workers = workers_free(plain->workers);
	free(plain);
}

static const struct engine_ops plain_ops = {
	.name = "plain",
	.start = plain_start,
	.flush = plain_flush,
	.reap = plain_reap,
	.free = plain_free,
};

int plain_new(unsigned queue_depth, unsigned devices, struct engine **ret_engine)
{
	unsigned depth = queue_depth < MAX_DEPTH ? queue_depth : MAX_DEPTH, threads = depth * devices;
	struct plain_engine *plain = calloc(1, sizeof(*plain) + threads * sizeof(plain->operations[0]));
	int r;

	if (!plain)
		return -ENOMEM;
	plain->engine.ops = &plain_ops;
	plain->engine.queue_depth = depth;
	queue_init(&plain->free);
	for (unsigned i = 0; i < threads; i++) {
		struct plain_operation *operation = &plain->operations[i];

		operation->plain = plain;
		operation->work.run = operation_run;
		operation->work.done = operation_done;
		queue_push(&plain->free, &operation->link);
	}
	r = workers_new(threads, "tierd-io", &plain->workers);
	if (r < 0) {
		plain_free(&plain->engine);
		return r;
	}
	plain->engine.fd = workers_fd(plain->workers);
	*ret_engine = &plain->engine;
	return 0;
}
