#include "offload/device/engine.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/clock.h"
#include "offload/device/engine_backend.h"
#include "offload/device/memory.h"

#define MAX_QUEUE_DEPTH 4096
#define MAX_IN_FLIGHT 16384 /* io_uring takes twice that */
#define MAX_RETRIES 8
#define PAGE_BYTES ((size_t)4096)

static int open_backend(const struct engine_config *config, unsigned devices, char *why, size_t why_size,
			struct engine **ret_engine)
{
	unsigned depth = config->queue_depth;
	const char *step = NULL;
	int r;

	if (depth > MAX_IN_FLIGHT / devices)
		depth = MAX_IN_FLIGHT / devices;
	if (config->is_plain) {
		snprintf(why, why_size, "io_uring is switched off");
		return plain_new(depth, devices, ret_engine);
	}
	r = ring_new(depth, devices, &step, ret_engine);
	if (r == 0 || !step)
		return r;
	snprintf(why, why_size, "%s: %s%s", step, strerror(-r),
		 r == -ENOMEM ? " (RLIMIT_MEMLOCK: raise it by ulimit -l, or LimitMEMLOCK= of the service)"
			      : "");
	return plain_new(depth, devices, ret_engine);
}

uint64_t engine_most_bytes(const struct engine *engine)
{
	return schedule_most_bytes(&engine->devices[0]);
}

static int make_schedules(struct engine *engine, const struct engine_config *config, unsigned devices)
{
	struct schedule_limits limits = { .depth = engine->queue_depth,
					  .background_bytes = config->background_bytes };

	if (limits.background_bytes == 0)
		limits.background_bytes = ENGINE_DEFAULT_BACKGROUND_BYTES;
	engine->devices = calloc(devices, sizeof(*engine->devices));
	if (!engine->devices)
		return -ENOMEM;
	engine->device_count = devices;
	for (unsigned device = 0; device < devices; device++)
		schedule_init(&engine->devices[device], &limits);
	return 0;
}

int engine_new(const struct engine_config *config, struct engine **ret_engine)
{
	unsigned devices = config->devices ? config->devices : 1;
	_cleanup_(engine_freep) struct engine *engine = NULL;
	char why[sizeof(engine->why)] = "";
	int r;

	if (config->queue_depth == 0 || config->queue_depth > MAX_QUEUE_DEPTH || devices > ENGINE_MAX_DEVICES)
		return -EINVAL;
	r = open_backend(config, devices, why, sizeof(why), &engine);
	if (r < 0)
		return r;

	memcpy(engine->why, why, sizeof(why));
	for (int file = 0; file < ENGINE_FILES; file++)
		engine->files[file].fd = -1;
	r = make_schedules(engine, config, devices);
	if (r < 0)
		return r;
	*ret_engine = TAKE_PTR(engine);
	return 0;
}

struct engine *engine_free(struct engine *engine)
{
	if (!engine)
		return NULL;
	for (int file = 0; file < ENGINE_FILES; file++)
		assert(engine->files[file].fd < 0 || schedule_flow_is_idle(&engine->files[file].flow));
	free(engine->devices);
	engine->ops->free(engine);
	return NULL;
}

const char *engine_name(const struct engine *engine)
{
	return engine->ops->name;
}

const char *engine_why(const struct engine *engine)
{
	return engine->why[0] ? engine->why : NULL;
}

void engine_file_weigh(struct engine *engine, int file, const struct tier_share *share)
{
	schedule_flow_weigh(&engine->files[file].flow, share);
}

int engine_file_add(struct engine *engine, int fd, unsigned device, const struct tier_share *share)
{
	assert(device < engine->device_count);
	for (int file = 0; file < ENGINE_FILES; file++) {
		int r = 0;

		if (engine->files[file].fd >= 0)
			continue;
		if (engine->ops->file_add)
			r = engine->ops->file_add(engine, file, fd);
		if (r < 0)
			return r;
		schedule_flow_init(&engine->files[file].flow, &engine->devices[device], share);
		engine->files[file].fd = fd;
		return file;
	}
	return -ENFILE;
}

void engine_file_remove(struct engine *engine, int file)
{
	assert(file >= 0 && file < ENGINE_FILES && engine->files[file].fd >= 0);
	assert(schedule_flow_is_idle(&engine->files[file].flow));
	if (engine->ops->file_remove)
		engine->ops->file_remove(engine, file);
	engine->files[file].fd = -1;
}

/* Pages that are not there would be made by the kernel while it has the ring locked, and nobody could submit
 * anything: two seconds for a GiB on a virtual machine whose host had yet to find memory. */
int engine_buffer_add(struct engine *engine, void *base, size_t length)
{
	if (!engine->ops->buffer_add)
		return 0;
	memory_touch(base, length);
	return engine->ops->buffer_add(engine, base, length);
}

void engine_buffer_remove(struct engine *engine, void *base, size_t length)
{
	if (engine->ops->buffer_remove)
		engine->ops->buffer_remove(engine, base, length);
}

uint64_t engine_pinned(struct engine *engine)
{
	return engine->ops->pinned ? engine->ops->pinned(engine) : 0;
}

/* A device that goes from transfer to transfer stays busy, and nobody looks at the clock. */
static void note_busy(struct engine *engine, unsigned device)
{
	struct engine_busy *busy = &engine->busy[device];
	bool is_busy = schedule_is_wanted(&engine->devices[device]);

	if (is_busy == busy->is_busy)
		return;
	if (is_busy)
		busy->since_ns = clock_now_ns();
	else
		busy->ns += clock_now_ns() - busy->since_ns;
	busy->is_busy = is_busy;
}

uint64_t engine_busy_ns(const struct engine *engine, unsigned device)
{
	const struct engine_busy *busy = &engine->busy[device];

	assert(device < engine->device_count);
	return busy->ns + (busy->is_busy ? clock_now_ns() - busy->since_ns : 0);
}

static void start_waiting(struct engine *engine)
{
	bool has_started = false;
	struct tier_io *io;

	for (unsigned device = 0; device < engine->device_count; device++) {
		while ((io = schedule_next(&engine->devices[device]))) {
			engine->ops->start(engine, io);
			has_started = true;
		}
		note_busy(engine, device);
	}
	if (has_started)
		engine->ops->flush(engine);
}

int engine_submit(struct engine *engine, int file, struct tier_io *io)
{
	assert(file >= 0 && file < ENGINE_FILES && engine->files[file].fd >= 0);
	assert((io->length > 0) == (io->direction != TIER_FLUSH));
	io->file = file;
	io->finished = 0;
	io->retries = 0;
	schedule_push(&engine->files[file].flow, io);
	/* During a reap one flush at its end shows the kernel all that was submitted. */
	if (!engine->is_reaping)
		start_waiting(engine);
	return 0;
}

void engine_raise(struct engine *engine, struct tier_io *io, enum tier_priority priority)
{
	schedule_raise(io, priority);
	/* It may start where it could not before. */
	if (!engine->is_reaping)
		start_waiting(engine);
}

/* Whether a transfer that did not advance may try again; the status if not. */
static bool may_retry(struct tier_io *io, int error, int *ret_status)
{
	if (io->retries++ < MAX_RETRIES)
		return true;
	*ret_status = error;
	return false;
}

/* Whether the transfer goes on after this result; how it ended if not. */
static bool goes_on(struct tier_io *io, int result, int *ret_status)
{
	size_t finished;

	/* A second flush could succeed without what the first has lost. */
	if (io->direction == TIER_FLUSH) {
		*ret_status = result < 0 ? result : 0;
		return false;
	}
	if (result == -EAGAIN || result == -EINTR)
		return may_retry(io, result, ret_status);
	if (result <= 0) {
		*ret_status = result < 0 ? result : -EIO;
		return false;
	}
	finished = io->finished + (size_t)result;
	if (finished >= io->length) {
		*ret_status = 0;
		return false;
	}
	/* O_DIRECT takes a rest only at a page. */
	finished &= ~(PAGE_BYTES - 1);
	if (finished == io->finished)
		return may_retry(io, -EIO, ret_status);
	io->finished = finished;
	io->retries = 0;
	return true;
}

void engine_finish(struct engine *engine, struct tier_io *io, int result)
{
	int status;

	assert(engine->is_reaping);
	schedule_finish(io);
	if (goes_on(io, result, &status))
		schedule_push_rest(io->flow, io);
	else
		io->done(io, status);
}

void engine_refuse(struct engine *engine, struct tier_io *io, int error)
{
	int status = error;

	assert(engine->is_reaping);
	schedule_finish(io);
	if ((error == -EAGAIN || error == -EINTR) && may_retry(io, error, &status))
		schedule_push_rest(io->flow, io);
	else
		io->done(io, status);
}

int engine_fd(const struct engine *engine)
{
	return engine->fd;
}

void engine_reap(struct engine *engine)
{
	assert(!engine->is_reaping);
	engine->is_reaping = true;
	engine->ops->reap(engine);
	engine->is_reaping = false;
	start_waiting(engine);
}
