#include "offload/engine.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "offload/engine_backend.h"

#define MAX_QUEUE_DEPTH 4096
#define MAX_RETRIES 8
#define PAGE_BYTES ((size_t)4096)

static int open_backend(const struct engine_config *config, char *why, size_t why_size,
			struct engine **ret_engine)
{
	const char *step = NULL;
	int r;

	if (config->is_plain) {
		snprintf(why, why_size, "io_uring is switched off");
		return plain_new(config->queue_depth, ret_engine);
	}
	r = ring_new(config->queue_depth, &step, ret_engine);
	if (r == 0 || !step)
		return r;
	snprintf(why, why_size, "%s: %s", step, strerror(-r));
	return plain_new(config->queue_depth, ret_engine);
}

int engine_new(const struct engine_config *config, struct engine **ret_engine)
{
	struct engine *engine;
	char why[sizeof(engine->why)] = "";
	int r;

	if (config->queue_depth == 0 || config->queue_depth > MAX_QUEUE_DEPTH)
		return -EINVAL;
	r = open_backend(config, why, sizeof(why), &engine);
	if (r < 0)
		return r;

	memcpy(engine->why, why, sizeof(why));
	engine->queue_depth = config->queue_depth;
	for (int priority = 0; priority < TIER_PRIORITIES; priority++)
		queue_init(&engine->waiting[priority]);
	for (int file = 0; file < ENGINE_FILES; file++)
		engine->files[file] = -1;
	*ret_engine = engine;
	return 0;
}

struct engine *engine_free(struct engine *engine)
{
	if (!engine)
		return NULL;
	assert(engine->in_flight == 0);
	for (int priority = 0; priority < TIER_PRIORITIES; priority++)
		assert(queue_is_empty(&engine->waiting[priority]));
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

int engine_file_add(struct engine *engine, int fd)
{
	for (int file = 0; file < ENGINE_FILES; file++) {
		int r = 0;

		if (engine->files[file] >= 0)
			continue;
		if (engine->ops->file_add)
			r = engine->ops->file_add(engine, file, fd);
		if (r < 0)
			return r;
		engine->files[file] = fd;
		return file;
	}
	return -ENFILE;
}

void engine_file_remove(struct engine *engine, int file)
{
	assert(file >= 0 && file < ENGINE_FILES && engine->files[file] >= 0);
	if (engine->ops->file_remove)
		engine->ops->file_remove(engine, file);
	engine->files[file] = -1;
}

int engine_buffer_add(struct engine *engine, void *base, size_t length)
{
	return engine->ops->buffer_add ? engine->ops->buffer_add(engine, base, length) : 0;
}

void engine_buffer_remove(struct engine *engine, void *base)
{
	if (engine->ops->buffer_remove)
		engine->ops->buffer_remove(engine, base);
}

static struct queue *pop_waiting(struct engine *engine)
{
	for (int priority = 0; priority < TIER_PRIORITIES; priority++) {
		struct queue *link = queue_pop(&engine->waiting[priority]);

		if (link)
			return link;
	}
	return NULL;
}

static void start_waiting(struct engine *engine)
{
	bool has_started = false;
	struct queue *link;

	while (engine->in_flight < engine->queue_depth && (link = pop_waiting(engine))) {
		engine->in_flight++;
		engine->ops->start(engine, queue_entry(link, struct tier_io, link));
		has_started = true;
	}
	if (has_started)
		engine->ops->flush(engine);
}

int engine_submit(struct engine *engine, int file, struct tier_io *io)
{
	assert(file >= 0 && file < ENGINE_FILES && engine->files[file] >= 0);
	assert(io->length > 0);
	io->file = file;
	io->finished = 0;
	io->retries = 0;
	queue_push(&engine->waiting[io->priority], &io->link);
	/* During a reap one flush at its end shows the kernel all that was submitted. */
	if (!engine->is_reaping)
		start_waiting(engine);
	return 0;
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
	engine->in_flight--;
	if (goes_on(io, result, &status))
		queue_push_front(&engine->waiting[io->priority], &io->link);
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
