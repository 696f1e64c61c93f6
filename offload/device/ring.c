/* The io_uring backend.
 *
 * A transfer is started (an entry is prepared), shown to the kernel (flush), and completed (reap). Where the
 * kernel takes no entries, flush leaves them, makes the descriptor readable, and the next reap takes them
 * back and finishes them with the error; the front door decides which errors are worth another try. At most
 * queue_depth entries for each device are out at once and the completion ring is twice that, so it cannot
 * overflow. */
#include <assert.h>
#include <errno.h>
#include <liburing.h>
#include <sys/eventfd.h>

#include "offload/device/engine_backend.h"
#include "offload/device/pins.h"

#define REAP_BATCH 64

struct ring_engine {
	struct engine engine;
	struct io_uring ring;
	bool is_open, has_files, has_buffers;
	int flush_error; /* of entries that the kernel did not take; 0: none */
	struct pins pins;
};

static struct ring_engine *ring_of(struct engine *engine)
{
	return container_of(engine, struct ring_engine, engine);
}

static int ring_file_add(struct engine *engine, int file, int fd)
{
	struct ring_engine *ring = ring_of(engine);
	int r;

	if (!ring->has_files)
		return 0;
	r = io_uring_register_files_update(&ring->ring, (unsigned)file, &fd, 1);
	return r < 0 ? r : 0;
}

static void ring_file_remove(struct engine *engine, int file)
{
	struct ring_engine *ring = ring_of(engine);

	if (ring->has_files)
		(void)io_uring_register_files_update(&ring->ring, (unsigned)file, &(int){ -1 }, 1);
}

/* These two make a system call only, so they need no lock against the loop. */
static int pin(struct ring_engine *ring, int slot, const struct pin *piece)
{
	struct iovec vector = { (void *)piece->base, piece->length };
	int r = io_uring_register_buffers_update_tag(&ring->ring, (unsigned)slot, &vector, NULL, 1);

	return r < 0 ? r : 0;
}

static void unpin(struct ring_engine *ring, int slot)
{
	struct iovec empty = { NULL, 0 };

	(void)io_uring_register_buffers_update_tag(&ring->ring, (unsigned)slot, &empty, NULL, 1);
}

/* A slot that was never pinned is unpinned without harm. */
static void ring_buffer_remove(struct engine *engine, void *base, size_t length)
{
	struct ring_engine *ring = ring_of(engine);
	struct pin piece;

	for (int slot = 0; (slot = pins_next(&ring->pins, base, length, slot, &piece)) >= 0; slot++) {
		unpin(ring, slot);
		pins_give(&ring->pins, slot);
	}
}

static int ring_buffer_add(struct engine *engine, void *base, size_t length)
{
	struct ring_engine *ring = ring_of(engine);
	struct pin piece;
	int r;

	if (!ring->has_buffers)
		return -EOPNOTSUPP;
	r = pins_take(&ring->pins, base, length);
	if (r < 0)
		return r;
	for (int slot = 0; (slot = pins_next(&ring->pins, base, length, slot, &piece)) >= 0; slot++) {
		r = pin(ring, slot, &piece);
		if (r < 0) {
			ring_buffer_remove(engine, base, length);
			return r;
		}
	}
	pins_ready(&ring->pins, base, length);
	return 0;
}

static uint64_t ring_pinned(struct engine *engine)
{
	return pins_bytes(&ring_of(engine)->pins);
}

static void prepare_transfer(struct ring_engine *ring, struct io_uring_sqe *entry, struct tier_io *io, int fd)
{
	char *buffer = engine_rest_buffer(io);
	unsigned length = engine_piece_length(io);
	uint64_t offset = engine_rest_offset(io);
	int slot = ring->has_buffers ? pins_find(&ring->pins, buffer, length) : -1;

	if (slot >= 0 && io->direction == TIER_READ)
		io_uring_prep_read_fixed(entry, fd, buffer, length, offset, slot);
	else if (slot >= 0)
		io_uring_prep_write_fixed(entry, fd, buffer, length, offset, slot);
	else if (io->direction == TIER_READ)
		io_uring_prep_read(entry, fd, buffer, length, offset);
	else
		io_uring_prep_write(entry, fd, buffer, length, offset);
}

static void prepare(struct ring_engine *ring, struct io_uring_sqe *entry, struct tier_io *io, int fd)
{
	if (io->direction == TIER_FLUSH)
		io_uring_prep_fsync(entry, fd, IORING_FSYNC_DATASYNC);
	else
		prepare_transfer(ring, entry, io, fd);
}

static void ring_start(struct engine *engine, struct tier_io *io)
{
	struct ring_engine *ring = ring_of(engine);
	struct io_uring_sqe *entry = io_uring_get_sqe(&ring->ring);

	assert(entry);
	prepare(ring, entry, io, ring->has_files ? io->file : engine->files[io->file].fd);
	if (ring->has_files)
		entry->flags |= IOSQE_FIXED_FILE;
	io_uring_sqe_set_data(entry, io);
}

static void ring_flush(struct engine *engine)
{
	struct ring_engine *ring = ring_of(engine);

	while (ring->flush_error == 0 && io_uring_sq_ready(&ring->ring) > 0) {
		int r = io_uring_submit(&ring->ring);

		if (r <= 0)
			ring->flush_error = r == 0 || r == -EBUSY ? -EAGAIN : r;
	}
	if (ring->flush_error)
		(void)!write(engine->fd, &(uint64_t){ 1 }, sizeof(uint64_t));
}

/* The kernel reads the submission ring only inside a call, so what it has not taken can be taken back. */
static void take_back(struct ring_engine *ring)
{
	struct io_uring_sq *queue = &ring->ring.sq;
	unsigned head = *queue->khead, tail = queue->sqe_tail;
	int error = ring->flush_error;

	queue->sqe_head = queue->sqe_tail = head;
	*queue->ktail = head;
	ring->flush_error = 0;
	for (; head != tail; head++) {
		struct io_uring_sqe *entry = &queue->sqes[head & queue->ring_mask];

		engine_refuse(&ring->engine, (struct tier_io *)(uintptr_t)entry->user_data, error);
	}
}

static unsigned reap_batch(struct ring_engine *ring)
{
	struct io_uring_cqe *completions[REAP_BATCH];
	struct tier_io *ios[REAP_BATCH];
	int results[REAP_BATCH];
	unsigned count = io_uring_peek_batch_cqe(&ring->ring, completions, REAP_BATCH);

	for (unsigned i = 0; i < count; i++) {
		ios[i] = io_uring_cqe_get_data(completions[i]);
		results[i] = completions[i]->res;
	}
	io_uring_cq_advance(&ring->ring, count);
	for (unsigned i = 0; i < count; i++)
		engine_finish(&ring->engine, ios[i], results[i]);
	return count;
}

static void ring_reap(struct engine *engine)
{
	struct ring_engine *ring = ring_of(engine);
	uint64_t ignored;

	(void)!read(engine->fd, &ignored, sizeof(ignored));
	if (ring->flush_error)
		take_back(ring);
	while (reap_batch(ring) > 0)
		;
	assert(*ring->ring.cq.koverflow == 0);
}

static void ring_free(struct engine *engine)
{
	struct ring_engine *ring = ring_of(engine);

	if (ring->is_open)
		io_uring_queue_exit(&ring->ring);
	fd_close(engine->fd);
	pins_destroy(&ring->pins);
	free(ring);
}

static const struct engine_ops ring_ops = {
	.name = "io_uring",
	.file_add = ring_file_add,
	.file_remove = ring_file_remove,
	.buffer_add = ring_buffer_add,
	.buffer_remove = ring_buffer_remove,
	.pinned = ring_pinned,
	.start = ring_start,
	.flush = ring_flush,
	.reap = ring_reap,
	.free = ring_free,
};

/* Tables of files and buffers only make it faster; kernels before 5.19 have none that start empty. */
static int open_ring(struct ring_engine *ring, unsigned entries, const char **ret_step)
{
	int r;

	ring->engine.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (ring->engine.fd < 0) {
		*ret_step = "eventfd";
		return -errno;
	}
	/* Without IORING_SETUP_SINGLE_ISSUER, and what needs it: buffers are registered from other threads.
	 * Completions need not interrupt the loop: it looks for them when it has done what it does. Kernels
	 * before 5.19 do not know that. */
	r = io_uring_queue_init(entries, &ring->ring, IORING_SETUP_COOP_TASKRUN);
	if (r == -EINVAL)
		r = io_uring_queue_init(entries, &ring->ring, 0);
	if (r < 0) {
		*ret_step = "io_uring_setup";
		return r;
	}
	ring->is_open = true;
	r = io_uring_register_eventfd(&ring->ring, ring->engine.fd);
	if (r < 0) {
		*ret_step = "io_uring_register_eventfd";
		return r;
	}
	ring->has_files = io_uring_register_files_sparse(&ring->ring, ENGINE_FILES) == 0;
	ring->has_buffers = io_uring_register_buffers_sparse(&ring->ring, PINS_SLOTS) == 0;
	return 0;
}

int ring_new(unsigned queue_depth, unsigned devices, const char **ret_step, struct engine **ret_engine)
{
	struct ring_engine *ring = calloc(1, sizeof(*ring));
	int r;

	if (!ring)
		return -ENOMEM;
	ring->engine.ops = &ring_ops;
	ring->engine.fd = -1;
	ring->engine.queue_depth = queue_depth;
	pins_init(&ring->pins);
	r = open_ring(ring, queue_depth * devices, ret_step);
	if (r < 0) {
		ring_free(&ring->engine);
		return r;
	}
	*ret_engine = &ring->engine;
	return 0;
}
