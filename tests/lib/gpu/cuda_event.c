/* Events of the stand-in for the GPU driver. One that processes share lies in a memory file, which another
 * process of the same user opens by the number of this process and of the descriptor. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/cleanup.h"
#include "tests/lib/gpu/standin.h"

#define MAGIC UINT64_C(0x4556454e54303031)
#define LOOK_NS 10000000 /* between looks whether the GPU is lost */

/* An event is recorded again and again, in any streams; a wait is for the last record before it, whichever of
 * the others come first. */
#define RECORDS 256 /* of an event, at once */
struct state {
	uint64_t magic;
	_Atomic uint32_t recorded;
	_Atomic uint32_t finished[RECORDS]; /* by number: the last one that has ended there */
	pthread_mutex_t lock;
	struct race_clock clock; /* of the last record */
};

struct driver_event {
	struct driver_context *context;
	struct state *state;
	int fd;
	bool is_imported;
	unsigned holders; /* the program, and tasks */
	struct queue link;
};

struct handle {
	uint64_t magic;
	pid_t process;
	int fd;
	ino_t file;
};
_Static_assert(sizeof(struct handle) <= sizeof(struct driver_event_handle), "64 bytes");

static struct queue events = { &events, &events };

/* With the lock held. */
static bool is_event(const struct driver_event *event)
{
	QUEUE_FOREACH (link, &events)
		if (queue_entry(link, struct driver_event, link) == event)
			return true;
	return false;
}

static int enter(const char *call, const struct driver_event *event)
{
	struct driver_context *context = NULL;
	int error = standin_enter_context(call, &context);
	bool is_known;

	pthread_mutex_lock(&standin_lock);
	is_known = is_event(event);
	pthread_mutex_unlock(&standin_lock);
	return error == DRIVER_DONE && !is_known ? DRIVER_INVALID_HANDLE : error;
}

static void lock(struct state *state)
{
	if (pthread_mutex_lock(&state->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&state->lock);
}

static void init_state(struct state *state)
{
	pthread_mutexattr_t attributes;

	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&state->lock, &attributes);
	pthread_mutexattr_destroy(&attributes);
	state->magic = MAGIC;
}

static struct state *map_state(int fd)
{
	void *state = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return state == MAP_FAILED ? NULL : state;
}

/* Takes the descriptor. */
static int event_new(struct driver_event **ret_event, struct driver_context *context, int fd,
		     bool is_imported)
{
	struct driver_event *event = calloc(1, sizeof(*event));
	struct state *state = event ? map_state(fd) : NULL;

	if (!state) {
		free(event);
		fd_close(fd);
		return DRIVER_OUT_OF_MEMORY;
	}
	event->context = context;
	event->state = state;
	event->fd = fd;
	event->is_imported = is_imported;
	event->holders = 1;
	pthread_mutex_lock(&standin_lock);
	queue_push(&events, &event->link);
	pthread_mutex_unlock(&standin_lock);
	*ret_event = event;
	return DRIVER_DONE;
}

int cuEventCreate(struct driver_event **ret_event, unsigned flags)
{
	struct driver_context *context;
	int error = standin_enter_context(__func__, &context), fd;

	if (error != DRIVER_DONE)
		return error;
	if (flags > 7 || (flags & DRIVER_SHARED && !(flags & DRIVER_NO_TIMES)))
		return DRIVER_INVALID_VALUE;
	fd = memfd_create("stand-in event", MFD_CLOEXEC);
	if (fd < 0 || ftruncate(fd, sizeof(struct state)) < 0) {
		fd_close(fd);
		return DRIVER_OUT_OF_MEMORY;
	}
	/* So that it cannot be exported. */
	error = event_new(ret_event, context, fd, !(flags & DRIVER_SHARED));
	if (error == DRIVER_DONE)
		init_state((*ret_event)->state);
	return error;
}

void event_release(struct driver_event *event)
{
	if (--event->holders > 0)
		return;
	munmap(event->state, sizeof(*event->state));
	fd_close(event->fd);
	free(event);
}

int cuEventDestroy_v2(struct driver_event *event)
{
	int error = enter(__func__, event);

	if (error != DRIVER_DONE)
		return error;
	pthread_mutex_lock(&standin_lock);
	queue_remove(&event->link);
	event_release(event);
	pthread_mutex_unlock(&standin_lock);
	return DRIVER_DONE;
}

int cuIpcGetEventHandle(struct driver_event_handle *ret_handle, struct driver_event *event)
{
	int error = enter(__func__, event);
	struct handle handle = { .magic = MAGIC, .process = getpid() };
	struct stat status;

	if (error != DRIVER_DONE)
		return error;
	if (event->is_imported || fstat(event->fd, &status) < 0)
		return DRIVER_INVALID_VALUE;
	handle.fd = event->fd;
	handle.file = status.st_ino;
	memset(ret_handle, 0, sizeof(*ret_handle));
	memcpy(ret_handle, &handle, sizeof(handle));
	return DRIVER_DONE;
}

static int open_handle(const struct handle *handle)
{
	_cleanup_close_ int fd = -1;
	struct stat status;
	char path[64];

	if (handle->magic != MAGIC)
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)handle->process, handle->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &status) < 0 || status.st_ino != handle->file ||
	    status.st_size != sizeof(struct state))
		return -1;
	return TAKE_FD(fd);
}

/* The driver does not open a process's own either. */
int cuIpcOpenEventHandle(struct driver_event **ret_event, struct driver_event_handle given)
{
	struct driver_context *context;
	int error = standin_enter_context(__func__, &context), fd;
	struct handle handle;

	if (error != DRIVER_DONE)
		return error;
	memcpy(&handle, &given, sizeof(handle));
	if (handle.process == getpid())
		return DRIVER_INVALID_CONTEXT;
	fd = open_handle(&handle);
	return fd < 0 ? DRIVER_INVALID_HANDLE : event_new(ret_event, context, fd, true);
}

static bool has_finished(const struct state *state, uint32_t number)
{
	return (int32_t)(state->finished[number % RECORDS] - number) >= 0;
}

static int wait_for(struct state *state, uint32_t number, int device)
{
	const struct timespec look = { .tv_nsec = LOOK_NS };

	while (!has_finished(state, number)) {
		uint32_t finished = state->finished[number % RECORDS];

		if (standin_lost(device) != DRIVER_DONE)
			return standin_lost(device);
		if (!has_finished(state, number))
			syscall(SYS_futex, &state->finished[number % RECORDS], FUTEX_WAIT, finished, &look,
				NULL, 0);
	}
	return DRIVER_DONE;
}

static bool see_if_finished(struct state *state)
{
	bool is_finished;

	pthread_mutex_lock(&standin_lock);
	lock(state);
	is_finished = has_finished(state, state->recorded);
	if (is_finished)
		standin_see(&state->clock);
	pthread_mutex_unlock(&state->lock);
	pthread_mutex_unlock(&standin_lock);
	return is_finished;
}

int cuEventQuery(struct driver_event *event)
{
	int error = enter(__func__, event);

	if (error != DRIVER_DONE)
		return error;
	return see_if_finished(event->state) ? DRIVER_DONE : DRIVER_NOT_READY;
}

int cuEventSynchronize(struct driver_event *event)
{
	int error = enter(__func__, event);

	if (error == DRIVER_DONE)
		error = wait_for(event->state, event->state->recorded, standin_device(event->context));
	if (error == DRIVER_DONE)
		(void)see_if_finished(event->state);
	return error;
}

static void begin_record(struct driver_stream *stream, struct task *task)
{
	struct state *state = task->event->state;

	task->event->holders++;
	lock(state);
	state->clock = stream->actor.clock;
	task->number = ++state->recorded;
	pthread_mutex_unlock(&state->lock);
}

static int finish_record(struct driver_stream *stream, struct task *task)
{
	struct state *state = task->event->state;

	state->finished[task->number % RECORDS] = task->number;
	syscall(SYS_futex, &state->finished[task->number % RECORDS], FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
	return DRIVER_DONE;
}

static void begin_wait(struct driver_stream *stream, struct task *task)
{
	struct state *state = task->event->state;

	task->event->holders++;
	lock(state);
	race_join(&stream->actor.clock, &state->clock);
	task->number = state->recorded;
	pthread_mutex_unlock(&state->lock);
}

static int finish_wait(struct driver_stream *stream, struct task *task)
{
	return wait_for(task->event->state, task->number, standin_device(stream->context));
}

int cuEventRecord(struct driver_event *event, struct driver_stream *stream)
{
	const struct task task = { .begin = begin_record, .run = finish_record, .event = event };
	struct driver_context *context = NULL;
	int error = enter("event", event);

	if (error == DRIVER_DONE)
		error = cuCtxGetCurrent(&context);
	if (error == DRIVER_DONE && event->context != context)
		error = DRIVER_INVALID_HANDLE;
	return error == DRIVER_DONE ? stream_submit(__func__, stream, &task, false) : error;
}

int cuStreamWaitEvent(struct driver_stream *stream, struct driver_event *event, unsigned flags)
{
	const struct task task = { .begin = begin_wait, .run = finish_wait, .event = event };
	int error = enter("event", event);

	if (error == DRIVER_DONE && flags > 1)
		error = DRIVER_INVALID_VALUE;
	return error == DRIVER_DONE ? stream_submit(__func__, stream, &task, false) : error;
}
