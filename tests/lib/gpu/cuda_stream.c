/* Streams of the stand-in for the GPU driver: a thread each. $STANDIN_DELAY_US is how long one waits before
 * each task, so that whoever does not wait for it is too early. */
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "common/cleanup.h"
#include "common/clock.h"
#include "tests/lib/gpu/standin.h"

static struct queue streams = { &streams, &streams };
static struct queue ended = { &ended, &ended }; /* were destroyed, and nobody has seen their end */
static bool is_held;
static _Thread_local struct driver_stream *current;

struct driver_stream *stream_current(void)
{
	return current;
}

void standin_hold(bool is_to_hold)
{
	pthread_mutex_lock(&standin_lock);
	is_held = is_to_hold;
	pthread_cond_broadcast(&standin_changed);
	pthread_mutex_unlock(&standin_lock);
}

static void perform(struct driver_stream *stream, struct task *task)
{
	int device = standin_device(stream->context), error;

	if (stream->delay_us > 0)
		clock_sleep_ns((uint64_t)stream->delay_us * 1000);
	if (standin_lost(device) != DRIVER_DONE)
		return;
	error = task->run(stream, task);
	if (error != DRIVER_DONE)
		standin_lose(device, error);
}

static void task_free(struct task *task)
{
	if (task->event)
		event_release(task->event);
	free(task->before);
	free(task->copied);
	if (task->launched)
		(*task->launched)--;
	free(task);
}

static void *work(void *argument)
{
	struct driver_stream *stream = argument;

	current = stream;
	pthread_mutex_lock(&standin_lock);
	for (;;) {
		struct queue *link = is_held ? NULL : queue_pop(&stream->tasks);

		if (!link && !is_held && stream->is_closing)
			break;
		if (!link) {
			pthread_cond_wait(&standin_changed, &standin_lock);
			continue;
		}
		struct task *task = queue_entry(link, struct task, link);

		pthread_mutex_unlock(&standin_lock);
		perform(stream, task);
		pthread_mutex_lock(&standin_lock);
		task_free(task);
		stream->finished++;
		pthread_cond_broadcast(&standin_changed);
	}
	pthread_mutex_unlock(&standin_lock);
	return NULL;
}

/* Signals are the program's. */
static int start(struct driver_stream *stream)
{
	sigset_t all, previous;
	int r;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &previous);
	r = pthread_create(&stream->thread, NULL, work, stream);
	pthread_sigmask(SIG_SETMASK, &previous, NULL);
	if (r == 0)
		pthread_setname_np(stream->thread, "gpu-stream");
	return r;
}

/* Priorities tell the GPU what to do first, and change no result. One that is out of range is taken as the
 * nearest. */
int cuStreamCreateWithPriority(struct driver_stream **ret_stream, unsigned flags, int priority)
{
	struct driver_context *context;
	struct driver_stream *stream;
	int error = standin_enter_context(__func__, &context);

	if (error != DRIVER_DONE)
		return error;
	if (flags > DRIVER_NO_STREAM_0)
		return DRIVER_INVALID_VALUE;
	stream = calloc(1, sizeof(*stream));
	if (!stream)
		return DRIVER_OUT_OF_MEMORY;
	stream->context = context;
	stream->delay_us = script_number("STANDIN_DELAY_US", 0);
	queue_init(&stream->tasks);
	race_actor_init(&stream->actor);
	if (start(stream) != 0) {
		free(stream);
		return DRIVER_OUT_OF_MEMORY;
	}
	pthread_mutex_lock(&standin_lock);
	queue_push(&streams, &stream->link);
	pthread_mutex_unlock(&standin_lock);
	*ret_stream = stream;
	return DRIVER_DONE;
}

int cuStreamCreate(struct driver_stream **ret_stream, unsigned flags)
{
	int error = standin_enter(__func__);

	return error == DRIVER_DONE ? cuStreamCreateWithPriority(ret_stream, flags, 0) : error;
}

/* With the lock held. */
static bool is_stream_of(const struct driver_stream *stream, const struct driver_context *context)
{
	QUEUE_FOREACH (link, &streams)
		if (queue_entry(link, struct driver_stream, link) == stream)
			return stream->context == context;
	return false;
}

static int enter(const char *call, const struct driver_stream *stream)
{
	struct driver_context *context = NULL;
	int error = standin_enter_context(call, &context);
	bool is_ours;

	pthread_mutex_lock(&standin_lock);
	is_ours = is_stream_of(stream, context);
	pthread_mutex_unlock(&standin_lock);
	return error == DRIVER_DONE && !is_ours ? DRIVER_INVALID_HANDLE : error;
}

static void end(struct driver_stream *stream)
{
	pthread_mutex_lock(&standin_lock);
	queue_remove(&stream->link);
	stream->is_closing = true;
	pthread_cond_broadcast(&standin_changed);
	pthread_mutex_unlock(&standin_lock);
	pthread_join(stream->thread, NULL);
	pthread_mutex_lock(&standin_lock);
	queue_push(&ended, &stream->link);
	pthread_mutex_unlock(&standin_lock);
}

/* What it was told is done first; but the caller does not know when, so that makes nothing safe. */
int cuStreamDestroy_v2(struct driver_stream *stream)
{
	int error = enter(__func__, stream);

	if (error == DRIVER_DONE)
		end(stream);
	return error;
}

int cuStreamGetCtx(struct driver_stream *stream, struct driver_context **ret_context)
{
	int error = standin_enter(__func__);

	if (error != DRIVER_DONE)
		return error;
	error = DRIVER_INVALID_HANDLE;
	pthread_mutex_lock(&standin_lock);
	QUEUE_FOREACH (link, &streams)
		if (queue_entry(link, struct driver_stream, link) == stream) {
			*ret_context = stream->context;
			error = DRIVER_DONE;
		}
	pthread_mutex_unlock(&standin_lock);
	return error;
}

static struct driver_stream *find_stream_of(const struct driver_context *context)
{
	struct driver_stream *found = NULL;

	pthread_mutex_lock(&standin_lock);
	QUEUE_FOREACH (link, &streams) {
		struct driver_stream *stream = queue_entry(link, struct driver_stream, link);

		if (stream->context == context)
			found = stream;
	}
	pthread_mutex_unlock(&standin_lock);
	return found;
}

/* With the lock held. */
static void see_ended(const struct driver_context *context)
{
	QUEUE_FOREACH (link, &ended) {
		struct driver_stream *stream = queue_entry(link, struct driver_stream, link);

		if (stream->context != context)
			continue;
		standin_see(&stream->actor.clock);
		queue_remove(link);
		free(stream);
	}
}

void streams_end(struct driver_context *context)
{
	struct driver_stream *stream;

	while ((stream = find_stream_of(context)))
		end(stream);
	pthread_mutex_lock(&standin_lock);
	see_ended(context);
	pthread_mutex_unlock(&standin_lock);
}

/* With the lock held. */
static bool is_busy(const struct driver_context *context)
{
	QUEUE_FOREACH (link, &streams) {
		const struct driver_stream *stream = queue_entry(link, struct driver_stream, link);

		if (stream->context == context && stream->finished < stream->submitted)
			return true;
	}
	return false;
}

int cuCtxSynchronize(void)
{
	struct driver_context *context;
	int error = standin_enter_context(__func__, &context);

	if (error != DRIVER_DONE)
		return error;
	pthread_mutex_lock(&standin_lock);
	while (is_busy(context) && standin_lost(standin_device(context)) == DRIVER_DONE)
		pthread_cond_wait(&standin_changed, &standin_lock);
	error = standin_lost(standin_device(context));
	if (error == DRIVER_DONE)
		see_ended(context);
	QUEUE_FOREACH (link, &streams) {
		const struct driver_stream *stream = queue_entry(link, struct driver_stream, link);

		if (error == DRIVER_DONE && stream->context == context)
			standin_see(&stream->actor.clock);
	}
	pthread_mutex_unlock(&standin_lock);
	return error;
}

void standin_see(const struct race_clock *clock)
{
	memory_see(clock);
	host_see(clock);
}

/* With the lock held. Others may tell it more meanwhile. */
static int await(const struct driver_stream *stream)
{
	int device = standin_device(stream->context);
	uint64_t number = stream->submitted;

	while (stream->finished < number && standin_lost(device) == DRIVER_DONE)
		pthread_cond_wait(&standin_changed, &standin_lock);
	return standin_lost(device);
}

static int wait_for(const struct driver_stream *stream)
{
	struct race_clock clock = stream->actor.clock;
	int error = await(stream);

	if (error == DRIVER_DONE)
		standin_see(&clock);
	return error;
}

int standin_await(struct driver_stream *stream)
{
	int error = enter(__func__, stream);

	if (error != DRIVER_DONE)
		return error;
	pthread_mutex_lock(&standin_lock);
	error = await(stream);
	pthread_mutex_unlock(&standin_lock);
	return error;
}

int cuStreamSynchronize(struct driver_stream *stream)
{
	int error = enter(__func__, stream);

	if (error != DRIVER_DONE)
		return error;
	pthread_mutex_lock(&standin_lock);
	error = wait_for(stream);
	pthread_mutex_unlock(&standin_lock);
	return error;
}

int cuStreamQuery(struct driver_stream *stream)
{
	int error = enter(__func__, stream);

	if (error != DRIVER_DONE)
		return error;
	pthread_mutex_lock(&standin_lock);
	if (stream->finished < stream->submitted)
		error = DRIVER_NOT_READY;
	else
		standin_see(&stream->actor.clock);
	pthread_mutex_unlock(&standin_lock);
	return error;
}

int stream_submit(const char *call, struct driver_stream *stream, const struct task *task, bool is_waited_for)
{
	int error = enter(call, stream);
	struct task *copy = error == DRIVER_DONE ? malloc(sizeof(*copy)) : NULL;

	if (!copy)
		return error == DRIVER_DONE ? DRIVER_OUT_OF_MEMORY : error;
	*copy = *task;
	pthread_mutex_lock(&standin_lock);
	race_step(&stream->actor);
	copy->begin(stream, copy);
	queue_push(&stream->tasks, &copy->link);
	stream->submitted++;
	pthread_cond_broadcast(&standin_changed);
	if (is_waited_for)
		error = wait_for(stream);
	pthread_mutex_unlock(&standin_lock);
	return error;
}
